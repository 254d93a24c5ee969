#include "kernels/backend.hpp"
#include "kernels/cpu/cpu_kind.hpp"
#include "kernels/cpu/elementwise_plan.hpp"
#include "kernels/cpu/parallel.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace syncnorm::cpu {

namespace {

/// Bytes of a block's inputs, which are still in a core's own cache after the
/// first of two passes.
constexpr std::int64_t block_bytes = std::int64_t{1} << 19;
/// The most bytes of one channel's inputs that are worth a block: beyond a
/// core's own cache they are still in the shared one.
constexpr std::int64_t kept_bytes = std::int64_t{1} << 22;

/// The fewest bytes of a block that lie together in one sample: Zen 5 takes
/// longer to find shorter parts than to read all again from the shared cache.
std::int64_t least_part_bytes() {
  return this_cpu() == cpu_kind::zen5 ? std::int64_t{1} << 14 : 0;
}

/// Bytes of a block's inputs beside which a core's own cache has room for the
/// next block's.
constexpr std::int64_t paired_bytes = std::int64_t{1} << 20;
/// The same where dx is written in between, and inputs of both blocks are read.
constexpr std::int64_t overlapped_bytes = std::int64_t{7} << 17;

template <class Void>
Void* skip(Void* array, std::int64_t elements, dtype type) {
  using byte =
      std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  if (array == nullptr)
    return nullptr;
  return static_cast<byte*>(array) + elements * std::int64_t(size_of(type));
}

/// Some neighbouring channels, and their part of what belongs to all.
struct channel_range {
  std::int64_t first;
  std::int64_t count;

  [[nodiscard]] tensor_layout of(tensor_layout x) const {
    x.shape.channels = count;
    return x;
  }

  [[nodiscard]] const_tensor_view of(const const_tensor_view& x) const {
    return {of(x.data(), x), of(x.layout())};
  }

  [[nodiscard]] tensor_view of(const tensor_view& x) const {
    return {of(x.data(), x), of(x.layout())};
  }

  /// Of memory with the layout of `like`, whose channels come first.
  template <class Void>
  [[nodiscard]] Void* of(Void* data, const const_tensor_view& like) const {
    return skip(data, first * like.shape().spatial, like.type());
  }

  /// Of an array with an element for each channel.
  template <class Void>
  [[nodiscard]] Void* of(Void* array, dtype type) const {
    return skip(array, first, type);
  }
};

/// What a whole pass processes at a time: all channels or, where that keeps the
/// inputs in a cache, some. Depends only on the tensor and the kind of CPU.
class channel_blocks {
public:
  /// @param inputs  tensors that are read twice.
  /// @param masked  words of the mask belong to more than one channel.
  channel_blocks(const tensor_layout& x, std::int64_t inputs, bool masked)
      : channels_{x.shape.channels},
        width_{channels_},
        bytes_{x.shape.per_channel() > kept_bytes
                   ? kept_bytes + 1
                   : inputs * x.shape.per_channel()
                         * std::int64_t(size_of(x.type))} {
    if (x.format != memory_format::channels_first || x.shape.spatial <= 1
        || masked || bytes_ <= 0 || bytes_ > kept_bytes)
      return;
    auto width = std::clamp(block_bytes / bytes_, std::int64_t{1}, channels_);
    if (width * x.shape.spatial * std::int64_t(size_of(x.type))
        >= least_part_bytes())
      width_ = width;
  }

  [[nodiscard]] std::int64_t size() const {
    return (channels_ + width_ - 1) / width_;
  }

  /// Whether the inputs of a block take at most `bytes`.
  [[nodiscard]] bool fits(std::int64_t bytes) const {
    return width_ * bytes_ <= bytes;
  }

  [[nodiscard]] channel_range operator[](std::int64_t i) const {
    return {i * width_, std::min(width_, channels_ - i * width_)};
  }

private:
  std::int64_t channels_;
  std::int64_t width_;
  /// Of the inputs of one channel.
  std::int64_t bytes_;
};

/// Elements from this block's x to the next block's, if that is to be
/// prefetched while the output of this one is written; else 0.
std::int64_t upcoming_of(const tensor_layout& x, const channel_range& some) {
  auto elements = some.count * x.shape.per_channel();
  auto last = some.first + some.count == x.shape.channels;
  auto fits = elements * std::int64_t(size_of(x.type)) <= paired_bytes;
  return !last && fits ? some.count * x.shape.spatial : 0;
}

/// A block, and how and where it is done.
struct block_task {
  execution run;
  channel_range some;
  workspace scratch;
  /// The previous block, if the same thread has done it; else this one.
  channel_range before;
  /// No other block follows in the same thread.
  bool last = true;

  [[nodiscard]] bool first() const {
    return before.first == some.first;
  }
};

/// Calls `body(block_task)` for each block, in parallel where the caller
/// supplies a way to; a single block is split itself.
template <class Body>
void for_blocks(const execution& run, const channel_blocks& blocks,
                const workspace& scratch, const Body& body) {
  if (blocks.size() == 1)
    return body(block_task{run, blocks[0], scratch, blocks[0]});
  for_ranges(run, blocks.size(), [&](std::int64_t first, std::int64_t last) {
    for (auto i = first; i < last; ++i) {
      auto bytes = scratch.bytes / std::size_t(blocks.size()) / 64 * 64;
      auto* memory = static_cast<std::byte*>(scratch.data);
      body(block_task{execution{run.where}, blocks[i],
                      workspace{memory + std::size_t(i) * bytes, bytes},
                      blocks[std::max(i - 1, first)], i + 1 == last});
    }
  });
}

/// Workspace of all blocks, each of which needs what `needed` returns.
template <class Needed>
std::size_t workspace_of(const tensor_layout& x, const channel_blocks& blocks,
                         const Needed& needed) {
  auto one = needed(blocks[0].of(x));
  return (one + 63) / 64 * 64 * std::size_t(blocks.size());
}

channel_blocks forward_blocks(const tensor_layout& x, bool masked) {
  return {x, 1, masked};
}

channel_blocks backward_blocks(const tensor_layout& x, bool masked) {
  return {x, 2, masked};
}

} // namespace

std::size_t batch_norm_forward_workspace(const tensor_layout& x) {
  auto of = [&](bool masked) {
    return workspace_of(x, forward_blocks(x, masked),
                        cpu::batch_moments_workspace);
  };
  return std::max(of(false), of(true));
}

void batch_norm_forward(const execution& run, const const_tensor_view& x,
                        const finalize_options& options,
                        const batch_statistics& statistics, const void* weight,
                        const void* bias, const tensor_view& y,
                        const fused_tail& tail, const workspace& scratch) {
  auto blocks = forward_blocks(x.layout(), tail.mask != nullptr);
  auto type = statistics_type(x.type());
  auto pass = [&](const block_task& task) {
    const auto& how = task.run;
    const auto& some = task.some;
    auto* mean = some.of(statistics.mean, type);
    auto* inv_std = some.of(statistics.inv_std, type);
    running_view running{some.of(statistics.running.mean, type),
                         some.of(statistics.running.var, type)};
    moments_view moments{
        x.shape().per_channel(), mean, inv_std, some.count, type, x.where()};
    cpu::batch_moments(how, some.of(x), moments, task.scratch);
    cpu::finalize_moments(how, moments, options, mean, inv_std, running);
    auto rest = tail;
    rest.residual = some.of(tail.residual, y);
    cpu::normalize(how, some.of(x),
                   {.mean = mean,
                    .spread = inv_std,
                    .weight = some.of(weight, type),
                    .bias = some.of(bias, type)},
                   some.of(y), rest, upcoming_of(x.layout(), some));
  };
  for_blocks(run, blocks, scratch, pass);
}

std::size_t batch_norm_backward_workspace(const tensor_layout& x) {
  auto of = [&](bool masked) {
    return workspace_of(x, backward_blocks(x, masked),
                        cpu::backward_reduce_workspace);
  };
  return std::max(of(false), of(true));
}

void batch_norm_backward(const execution& run, const const_tensor_view& dy,
                         const const_tensor_view& x,
                         const channel_parameters& parameters,
                         const std::uint8_t* mask, const backward_sums& out,
                         const tensor_view& dx, void* residual_grad,
                         const workspace& scratch) {
  auto blocks = backward_blocks(x.layout(), mask != nullptr);
  auto type = statistics_type(x.type());
  auto sums_of = [&](const channel_range& some) {
    return backward_sums{
        some.of(out.sum_dy, type), some.of(out.sum_dy_xmu, type),
        some.of(out.weight_grad, type), some.of(out.bias_grad, type)};
  };
  auto call_of = [&](const channel_range& some) {
    auto sums = sums_of(some);
    return backward_input_call{
        some.of(dy),
        some.of(x),
        {some.of(parameters.mean, type), some.of(parameters.inv_std, type),
         some.of(parameters.weight, type), nullptr},
        {sums.sum_dy, sums.sum_dy_xmu, x.shape().per_channel()},
        mask,
        some.of(dx),
        some.of(residual_grad, dx)};
  };
  // Output that goes past the caches is written while the next block is
  // reduced; on Zen 5, both take less time one after the other.
  auto overlapped = blocks.fits(overlapped_bytes)
                    && is_streamed(call_of(blocks[0]))
                    && this_cpu() != cpu_kind::zen5;
  auto pass = [&](const block_task& task) {
    auto call = call_of(task.some);
    auto earlier = call_of(task.before);
    cpu::backward_reduce(task.run, call.dy, call.x, call.parameters, mask,
                         sums_of(task.some), task.scratch,
                         overlapped && !task.first() ? &earlier : nullptr);
    if (!overlapped || task.last)
      cpu::backward_input(task.run, call);
  };
  for_blocks(run, blocks, scratch, pass);
}

} // namespace syncnorm::cpu
