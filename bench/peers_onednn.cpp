#include "bench/peers.hpp"

#include <dnnl.hpp>
#include <omp.h>

#include <unordered_map>
#include <vector>

namespace syncnorm::bench {

namespace {

class onednn_peer : public peer {
public:
  explicit onednn_peer(const layer_memory& memory)
      : y_{memory.y},
        dx_{memory.dx},
        mean_(std::size_t(memory.layout.shape.channels)),
        var_(mean_.size()),
        weight_grad_(mean_.size()),
        bias_grad_(mean_.size()) {
    omp_set_num_threads(1);
    make_forward(memory);
    make_backward(memory);
  }

  void forward() override {
    forward_.execute(stream_, forward_arguments_);
    stream_.wait();
  }

  void backward() override {
    backward_.execute(stream_, backward_arguments_);
    stream_.wait();
  }

  [[nodiscard]] const void* output() const override {
    return y_;
  }

  [[nodiscard]] const void* input_gradient() const override {
    return dx_;
  }

private:
  using desc = dnnl::memory::desc;
  using tag = dnnl::memory::format_tag;
  using arguments = std::unordered_map<int, dnnl::memory>;

  static dnnl::normalization_flags flags() {
    return dnnl::normalization_flags::use_scale
           | dnnl::normalization_flags::use_shift;
  }

  static desc layout_of(const layer_memory& memory) {
    auto [n, c, s] = memory.layout.shape;
    auto type = memory.layout.type == dtype::bfloat16
                    ? dnnl::memory::data_type::bf16
                    : dnnl::memory::data_type::f32;
    // Without spatial elements both tags describe the same bytes, but with nchw
    // oneDNN picks an implementation that is many times slower.
    auto last = memory.layout.format == memory_format::channels_last || s == 1;
    return {{n, c, memory.height, memory.width},
            type,
            last ? tag::nhwc : tag::nchw};
  }

  dnnl::memory wrap(const desc& layout, void* data) {
    return {layout, engine_, data};
  }

  dnnl::memory wrap(float* data, std::int64_t channels) {
    return wrap({{channels}, dnnl::memory::data_type::f32, tag::a}, data);
  }

  void make_forward(const layer_memory& memory) {
    auto layout = layout_of(memory);
    auto c = memory.layout.shape.channels;
    dnnl::batch_normalization_forward::desc wanted{
        dnnl::prop_kind::forward_training, layout, float(memory.eps), flags()};
    forward_hint_ = {wanted, engine_};
    forward_ = dnnl::batch_normalization_forward{forward_hint_};
    forward_arguments_ = {{DNNL_ARG_SRC, wrap(layout, memory.x)},
                          {DNNL_ARG_DST, wrap(layout, memory.y)},
                          {DNNL_ARG_SCALE, wrap(memory.weight, c)},
                          {DNNL_ARG_SHIFT, wrap(memory.bias, c)},
                          {DNNL_ARG_MEAN, wrap(mean_.data(), c)},
                          {DNNL_ARG_VARIANCE, wrap(var_.data(), c)}};
  }

  void make_backward(const layer_memory& memory) {
    auto layout = layout_of(memory);
    auto c = memory.layout.shape.channels;
    dnnl::batch_normalization_backward::desc wanted{
        dnnl::prop_kind::backward, layout, layout, float(memory.eps), flags()};
    backward_ =
        dnnl::batch_normalization_backward{{wanted, engine_, forward_hint_}};
    backward_arguments_ = {{DNNL_ARG_SRC, wrap(layout, memory.x)},
                           {DNNL_ARG_DIFF_DST, wrap(layout, memory.dy)},
                           {DNNL_ARG_DIFF_SRC, wrap(layout, memory.dx)},
                           {DNNL_ARG_SCALE, wrap(memory.weight, c)},
                           {DNNL_ARG_SHIFT, wrap(memory.bias, c)},
                           {DNNL_ARG_MEAN, wrap(mean_.data(), c)},
                           {DNNL_ARG_VARIANCE, wrap(var_.data(), c)},
                           {DNNL_ARG_DIFF_SCALE, wrap(weight_grad_.data(), c)},
                           {DNNL_ARG_DIFF_SHIFT, wrap(bias_grad_.data(), c)}};
  }

  void* y_;
  void* dx_;
  std::vector<float> mean_;
  std::vector<float> var_;
  std::vector<float> weight_grad_;
  std::vector<float> bias_grad_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::batch_normalization_forward::primitive_desc forward_hint_;
  dnnl::batch_normalization_forward forward_;
  dnnl::batch_normalization_backward backward_;
  arguments forward_arguments_;
  arguments backward_arguments_;
};

} // namespace

std::unique_ptr<peer> make_onednn(const layer_memory& memory) {
  return std::make_unique<onednn_peer>(memory);
}

std::string onednn_version() {
  const auto* version = dnnl::version();
  return std::to_string(version->major) + '.' + std::to_string(version->minor)
         + '.' + std::to_string(version->patch);
}

} // namespace syncnorm::bench
