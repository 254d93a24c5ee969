#include "bench/cuda_peer.hpp"

#include <ATen/ATen.h>
#include <torch/version.h>

namespace syncnorm::bench {

namespace {

constexpr double eps = 1e-5;
constexpr double momentum = 0.1;
constexpr std::int64_t parts = 8;

at::TensorOptions options_of(dtype type) {
  auto scalar = type == dtype::float16    ? at::kHalf
                : type == dtype::bfloat16 ? at::kBFloat16
                                          : at::kFloat;
  return at::TensorOptions().dtype(scalar).device(at::kCUDA, 0);
}

class torch_peer : public peer {
public:
  explicit torch_peer(const bench_tensors& from)
      : channels_{from.shape.channels},
        mean_{array(from.mean, {channels_})},
        inv_std_{array(from.inv_std, {channels_})},
        weight_{array(from.weight, {channels_})},
        bias_{array(from.bias, {channels_})},
        sum_dy_{array(from.sum_dy, {channels_})},
        sum_dy_xmu_{array(from.sum_dy_xmu, {channels_})},
        running_mean_{array(from.running_mean, {channels_})},
        running_var_{array(from.running_var, {channels_})},
        part_means_{array(from.part_means, {parts, channels_})},
        part_inv_stds_{array(from.part_m2s, {parts, channels_})},
        part_counts_{array(from.part_counts, {parts})},
        total_count_{
            at::from_blob(from.total_count.data(), {1},
                          options_of(dtype::float32).dtype(at::kInt))} {
    for (std::size_t i = 0; i < from.x.size(); ++i) {
      x_.push_back(tensor(from, from.x[i]));
      dy_.push_back(tensor(from, from.dy[i]));
    }
  }

  void stats(std::size_t i) override {
    at::batch_norm_stats(x_[i], eps);
  }
  void gather_stats(std::size_t i) override {
    at::batch_norm_gather_stats_with_counts(x_[i], part_means_, part_inv_stds_,
                                            running_mean_, running_var_,
                                            momentum, eps, part_counts_);
  }
  void elemt(std::size_t i) override {
    at::batch_norm_elemt(x_[i], weight_, bias_, mean_, inv_std_, eps);
  }
  void backward_reduce(std::size_t i) override {
    at::batch_norm_backward_reduce(dy_[i], x_[i], mean_, inv_std_, weight_,
                                   true, true, true);
  }
  void backward_elemt(std::size_t i) override {
    at::batch_norm_backward_elemt(dy_[i], x_[i], mean_, inv_std_, weight_,
                                  sum_dy_, sum_dy_xmu_, total_count_);
  }

private:
  static at::Tensor array(const device_memory& memory, at::IntArrayRef sizes) {
    return at::from_blob(memory.data(), sizes, options_of(dtype::float32));
  }

  static at::Tensor tensor(const bench_tensors& from,
                           const device_memory& memory) {
    auto [n, c, h, w] = from.shape;
    auto options = options_of(from.layout.type);
    if (h * w == 1)
      return at::from_blob(memory.data(), {n, c}, options);
    if (from.layout.format == memory_format::channels_first)
      return at::from_blob(memory.data(), {n, c, h, w}, options);
    return at::from_blob(memory.data(), {n, c, h, w}, {c * h * w, 1, w * c, c},
                         options);
  }

  std::int64_t channels_;
  at::Tensor mean_, inv_std_, weight_, bias_, sum_dy_, sum_dy_xmu_,
      running_mean_, running_var_, part_means_, part_inv_stds_, part_counts_,
      total_count_;
  std::vector<at::Tensor> x_, dy_;
};

} // namespace

std::unique_ptr<peer> make_peer(const bench_tensors& tensors) {
  return std::make_unique<torch_peer>(tensors);
}

std::string peer_version() {
  return TORCH_VERSION;
}

} // namespace syncnorm::bench
