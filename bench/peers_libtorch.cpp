#include "bench/peers.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

namespace syncnorm::bench {

namespace {

class libtorch_peer : public peer {
public:
  explicit libtorch_peer(const layer_memory& memory)
      : x_{wrap(memory, memory.x)},
        dy_{wrap(memory, memory.dy)},
        weight_{parameter(memory, memory.weight)},
        bias_{parameter(memory, memory.bias)},
        eps_{memory.eps} {
    at::set_num_threads(1);
  }

  void forward() override {
    // The previous output is released first, so that its memory is reused.
    y_.reset();
    std::tie(y_, mean_, inv_std_) = at::native_batch_norm(
        x_, weight_, bias_, running_mean_, running_var_, true, 0.1, eps_);
  }

  void backward() override {
    dx_.reset();
    at::Tensor weight_grad;
    at::Tensor bias_grad;
    std::tie(dx_, weight_grad, bias_grad) = at::native_batch_norm_backward(
        dy_, x_, weight_, running_mean_, running_var_, mean_, inv_std_, true,
        eps_, {true, true, true});
  }

  [[nodiscard]] const void* output() const override {
    return y_.data_ptr();
  }

  [[nodiscard]] const void* input_gradient() const override {
    return dx_.data_ptr();
  }

private:
  static at::Tensor wrap(const layer_memory& memory, void* data) {
    auto [n, c, s] = memory.layout.shape;
    auto type =
        memory.layout.type == dtype::bfloat16 ? at::kBFloat16 : at::kFloat;
    auto h = memory.height;
    auto w = memory.width;
    if (s == 1)
      return at::from_blob(data, {n, c}, at::TensorOptions{}.dtype(type));
    auto last = memory.layout.format == memory_format::channels_last;
    std::vector<std::int64_t> strides{c * s, s, w, 1};
    if (last)
      strides = {c * s, 1, w * c, c};
    return at::from_blob(data, {n, c, h, w}, strides,
                         at::TensorOptions{}.dtype(type));
  }

  static at::Tensor parameter(const layer_memory& memory, float* data) {
    return at::from_blob(data, {memory.layout.shape.channels}, at::kFloat);
  }

  at::Tensor x_;
  at::Tensor dy_;
  at::Tensor weight_;
  at::Tensor bias_;
  double eps_;
  at::Tensor running_mean_ = at::zeros_like(weight_);
  at::Tensor running_var_ = at::ones_like(weight_);
  at::Tensor y_;
  at::Tensor dx_;
  at::Tensor mean_;
  at::Tensor inv_std_;
};

} // namespace

std::unique_ptr<peer> make_libtorch(const layer_memory& memory) {
  return std::make_unique<libtorch_peer>(memory);
}

std::string libtorch_version() {
  return TORCH_VERSION;
}

} // namespace syncnorm::bench
