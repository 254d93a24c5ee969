#include "bench/layer/peer.hpp"

#include "syncnorm/batch_norm.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace syncnorm::bench {

namespace {

/// The kernels' own passes over all samples at once, into memory of their own:
/// what is compared with them is in the layer's memory.
class kernel_peer : public peer {
public:
  explicit kernel_peer(const layer_memory& memory)
      : m_{memory},
        channels_{static_cast<std::size_t>(memory.layout.shape.channels)},
        values_(4 * channels_),
        y_(static_cast<std::size_t>(memory.layout.shape.samples
                                    * memory.layout.sample_stride)),
        dx_(y_.size()),
        scratch_(std::max(batch_norm_forward_workspace(memory.layout),
                          batch_norm_backward_workspace(memory.layout))) {}

  void forward() override {
    batch_norm_forward({}, x(), {.eps = m_.eps}, {at(0), at(1), {}}, m_.weight,
                       m_.bias, {y_.data(), m_.layout}, {}, scratch());
  }

  void backward() override {
    batch_norm_backward(
        {}, {m_.dy, m_.layout}, x(), {at(0), at(1), m_.weight, m_.bias},
        nullptr, {at(2), at(3)}, {dx_.data(), m_.layout}, nullptr, scratch());
  }

  [[nodiscard]] const void* output() const override {
    return y_.data();
  }

  [[nodiscard]] const void* input_gradient() const override {
    return dx_.data();
  }

private:
  [[nodiscard]] const_tensor_view x() const {
    return {m_.x, m_.layout};
  }

  float* at(std::size_t array) {
    return values_.data() + array * channels_;
  }

  workspace scratch() {
    return {scratch_.data(), scratch_.size()};
  }

  layer_memory m_;
  std::size_t channels_;
  std::vector<float> values_;
  std::vector<float> y_;
  std::vector<float> dx_;
  std::vector<std::byte> scratch_;
};

} // namespace

bool has_libtorch() noexcept {
  return false;
}

std::unique_ptr<peer> make_plain_peer(const layer_memory& memory) {
  return std::make_unique<kernel_peer>(memory);
}

} // namespace syncnorm::bench
