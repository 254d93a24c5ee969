#include "bench/cuda_peer.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#include <tuple>

namespace syncnorm::bench {

namespace {

constexpr double eps = 1e-5;
constexpr double momentum = 0.1;

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
        part_means_{array(from.part_means, {bench_parts, channels_})},
        part_inv_stds_{array(from.part_inv_stds, {bench_parts, channels_})},
        part_counts_{array(from.part_counts, {bench_parts})},
        total_count_{
            at::from_blob(from.total_count.data(), {1},
                          options_of(dtype::float32).dtype(at::kInt))} {
    for (std::size_t i = 0; i < from.x.size(); ++i) {
      x_.push_back(tensor(from, from.x[i]));
      dy_.push_back(tensor(from, from.dy[i]));
      // Memory for all, so that no timed call asks the driver for it.
      out_.push_back(at::empty_like(x_.back()));
    }
  }

  /// Leaves nothing in libtorch's allocator: the next tensors need the memory.
  ~torch_peer() override {
    out_.clear();
    try {
      c10::cuda::CUDACachingAllocator::emptyCache();
    } catch (const c10::Error&) { // The device has failed, and said so before.
    }
  }
  torch_peer(const torch_peer&) = delete;
  torch_peer& operator=(const torch_peer&) = delete;

  void stats(std::size_t i) override {
    stats_ = at::batch_norm_stats(x_[i], eps);
  }
  void gather_stats(std::size_t i) override {
    total_ = at::batch_norm_gather_stats_with_counts(
        x_[i], part_means_, part_inv_stds_, running_mean_, running_var_,
        momentum, eps, part_counts_);
  }
  void elemt(std::size_t i) override {
    out_[i] = at::batch_norm_elemt(x_[i], weight_, bias_, mean_, inv_std_, eps);
  }
  void backward_reduce(std::size_t i) override {
    sums_ = at::batch_norm_backward_reduce(dy_[i], x_[i], mean_, inv_std_,
                                           weight_, true, true, true);
  }
  void backward_elemt(std::size_t i) override {
    out_[i] =
        at::batch_norm_backward_elemt(dy_[i], x_[i], mean_, inv_std_, weight_,
                                      sum_dy_, sum_dy_xmu_, total_count_);
  }

  [[nodiscard]] results made(operation by) const override {
    auto arrays = [](const auto&... tensors) {
      return std::vector<const void*>{tensors.data_ptr()...};
    };
    switch (by) {
    case operation::moments:
      return {{std::get<0>(stats_).data_ptr(), nullptr,
               std::get<1>(stats_).data_ptr()}};
    case operation::merge_and_finalize:
      return {arrays(std::get<0>(total_), std::get<1>(total_), running_mean_,
                     running_var_)};
    case operation::backward_reduce:
      return {std::apply(arrays, sums_)};
    case operation::normalize:
    case operation::backward_input:
      break;
    }
    return {{}, out_[0].data_ptr()};
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
  std::vector<at::Tensor> x_, dy_, out_;
  std::tuple<at::Tensor, at::Tensor> stats_, total_;
  std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> sums_;
};

} // namespace

std::unique_ptr<peer> make_peer(const bench_tensors& tensors) {
  return std::make_unique<torch_peer>(tensors);
}

std::string peer_version() {
  return TORCH_VERSION;
}

} // namespace syncnorm::bench
