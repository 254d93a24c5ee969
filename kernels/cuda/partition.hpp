#pragma once

// How a tensor is cut into the pieces that blocks and threads work on: plain
// arithmetic, for host and device, tested without a GPU.

#include "kernels/math.hpp"
#include "syncnorm/tensor_view.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace syncnorm::cuda {

/// Threads per block of every reduction and elementwise kernel.
inline constexpr int block_threads = 256;

/// Threads of a warp.
inline constexpr int warp_threads = 32;

/// The most blocks that a reduction over planes is cut into, where it has a
/// choice and no thread gets too much to do: four of 256 threads on each of the
/// 132 multiprocessors of an H100. The number is the same on every device, so
/// that results and workspace are the same, too.
inline constexpr std::int64_t plane_blocks = 528;

/// The same over rows: two on each, whose threads have twice the loads in
/// flight, since each block leaves partial results for all of its columns.
inline constexpr std::int64_t row_blocks = 264;

/// Bytes of the widest load and store of a thread.
inline constexpr int vector_bytes = 16;

[[nodiscard]] SYNCNORM_HOST_DEVICE constexpr std::int64_t
divide_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

/// The shape as kernels see it. Channels first: N * C planes of S elements.
/// Channels last: N * S rows of C elements.
struct extents {
  memory_format format = memory_format::channels_first;
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t spatial = 0;
  /// Channels last: how many true rows make up one row here; column j then
  /// belongs to channel j % (channels / fold).
  std::int64_t fold = 1;

  friend bool operator==(const extents&, const extents&) = default;
};

/// True if the samples of `layout` follow each other without a gap.
[[nodiscard]] constexpr bool is_dense(const tensor_layout& layout) {
  return layout.shape.samples <= 1
         || layout.sample_stride
                == layout.shape.channels * layout.shape.spatial;
}

/// Returns the simplest shape with the same memory order. Without spatial
/// elements both formats are the same, and rows of channels serve better; with
/// a single channel they are the same, too, and planes serve better. Dense
/// samples become one where the format permits.
/// @param dense  whether the samples of every tensor of the call are dense.
[[nodiscard]] constexpr extents
canonical(memory_format format, const tensor_shape& shape, bool dense) {
  extents result{format, shape.samples, shape.channels, shape.spatial};
  if (shape.channels == 1)
    result.format = memory_format::channels_first;
  else if (shape.spatial == 1)
    result.format = memory_format::channels_last;
  auto planes = result.format == memory_format::channels_first;
  if (dense && (!planes || shape.channels == 1)) {
    result.spatial *= result.samples;
    result.samples = 1;
  }
  return result;
}

/// Joins neighbouring rows until their length is a multiple of `width`, if the
/// number of rows permits: three channels can then be read by vectors of four.
/// Planes stay as they are.
[[nodiscard]] constexpr extents folded(extents shape, int width) {
  auto fold = width / std::gcd(shape.channels, std::int64_t{width});
  if (shape.format == memory_format::channels_first || fold == 1
      || shape.spatial % fold != 0)
    return shape;
  shape.channels *= fold;
  shape.spatial /= fold;
  shape.fold = fold;
  return shape;
}

/// How a reduction over samples and spatial elements is cut.
///
/// Channels first: the elements of one channel, counted over its planes by
/// vectors of `width` ("units"), are cut into `splits` runs of `chunk` units;
/// a block takes one run of one channel.
/// Channels last: the rows ("units") are cut into `splits` runs of `chunk`
/// rows, and the columns into `tiles` of `tile_width` vectors; a block takes
/// one run of one tile, `tile_height` rows at a time.
struct reduce_plan {
  extents shape;
  int width = 1;
  std::int64_t units = 0;
  std::int64_t chunk = 1;
  std::int64_t splits = 0;
  std::int64_t tiles = 1;
  int tile_width = 1;
  int tile_height = block_threads;

  /// Units of run `split`.
  [[nodiscard]] SYNCNORM_HOST_DEVICE constexpr std::int64_t
  units_of(std::int64_t split) const {
    auto left = units - split * chunk;
    return left < chunk ? left : chunk;
  }

  /// Elements of one column (channel) in run `split`.
  [[nodiscard]] SYNCNORM_HOST_DEVICE constexpr std::int64_t
  count_of(std::int64_t split) const {
    return units_of(split)
           * (shape.format == memory_format::channels_first ? width : 1);
  }

  /// True if one block sees all of a channel and needs no second pass.
  [[nodiscard]] constexpr bool direct() const {
    return splits * shape.fold == 1;
  }

  /// Partial results between the two passes.
  [[nodiscard]] constexpr std::int64_t partials() const {
    return splits * shape.channels;
  }
};

/// Loads that one thread of a reduction over planes has in flight at the same
/// time: 64 bytes with vectors, eight elements without.
[[nodiscard]] SYNCNORM_HOST_DEVICE constexpr int plane_loads(int width) {
  return width == 1 ? 8 : 4;
}

/// The same over rows.
inline constexpr int row_loads = 8;

/// The most rounds of loads of one thread: it merges them one after the other
/// in the type of calculation, few enough to keep the rounding error small. A
/// larger tensor is cut into more runs. A reduction of two tensors over rows
/// has twice as many rounds, of half the length.
inline constexpr std::int64_t thread_rounds = 256;

/// The most vectors in a tile of a reduction over rows: as many as a warp has
/// threads, or fewer, but at least four, if one round of loads then covers all
/// rows.
[[nodiscard]] constexpr std::int64_t widest_tile(std::int64_t rows) {
  constexpr std::int64_t narrowest = 4;
  constexpr std::int64_t widest = warp_threads;
  auto height = std::max(divide_up(rows, row_loads), std::int64_t{1});
  auto fitting = block_threads / height;
  return fitting < narrowest ? widest : std::min(fitting, widest);
}

/// @param width a divisor of S (channels first) or C (channels last).
[[nodiscard]] constexpr reduce_plan make_reduce_plan(const extents& shape,
                                                     int width) {
  reduce_plan plan{shape, width};
  // A thread without a full round of loads is not worth a block's reduction.
  std::int64_t least = row_loads;
  std::int64_t granule = block_threads;
  if (shape.format == memory_format::channels_first) {
    least = plane_loads(width);
    plan.units = shape.samples * (shape.spatial / width);
    plan.splits = plane_blocks / shape.channels;
  } else {
    plan.units = shape.samples * shape.spatial;
    auto vectors = shape.channels / width;
    plan.tiles = divide_up(vectors, widest_tile(plan.units));
    plan.tile_width = int(divide_up(vectors, plan.tiles));
    plan.tile_height = block_threads / plan.tile_width;
    plan.splits = row_blocks / plan.tiles;
    granule = plan.tile_height;
  }
  plan.splits = std::min(plan.splits, plan.units / (granule * least));
  auto longest = granule * least * thread_rounds;
  plan.splits = std::max(plan.splits, divide_up(plan.units, longest));
  plan.splits = std::max(plan.splits, std::int64_t{1});
  auto even = std::max(divide_up(plan.units, plan.splits), std::int64_t{1});
  plan.chunk = divide_up(even, granule) * granule;
  plan.splits = std::max(divide_up(plan.units, plan.chunk), std::int64_t{1});
  return plan;
}

/// The plan for tensors with elements of `element_bytes`. They are `dense` or
/// not, and `aligned` if they start and continue (from sample to sample) on
/// 16-byte boundaries.
[[nodiscard]] constexpr reduce_plan plan_reduction(memory_format format,
                                                   const tensor_shape& shape,
                                                   std::size_t element_bytes,
                                                   bool dense, bool aligned) {
  auto simple = canonical(format, shape, dense);
  auto width = int(vector_bytes / element_bytes);
  if (aligned) {
    auto wide = folded(simple, width);
    auto planes = wide.format == memory_format::channels_first;
    if ((planes ? wide.spatial : wide.channels) % width == 0)
      return make_reduce_plan(wide, width);
  }
  return make_reduce_plan(simple, 1);
}

/// Bytes that suffice for the partial results of any reduction of tensors of
/// this layout's shape and dtype, whatever their strides and alignment; two
/// float64 per column and run.
[[nodiscard]] constexpr std::size_t
reduction_workspace(const tensor_layout& layout) {
  std::int64_t partials = 0;
  for (auto dense : {false, true})
    for (auto aligned : {false, true}) {
      auto plan = plan_reduction(layout.format, layout.shape,
                                 size_of(layout.type), dense, aligned);
      if (!plan.direct())
        partials = std::max(partials, plan.partials());
    }
  return std::size_t(partials) * 2 * sizeof(double);
}

/// The packs of `width` neighbouring elements that one thread of an
/// elementwise kernel visits: first, first + step, ... below end. The number
/// of rounds is the same for all threads of a warp.
struct pack_range {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t end = 0;
};

/// How an elementwise kernel is cut. Channels first: a block takes `tile`
/// consecutive packs, so that a thread seldom changes its channel. Channels
/// last: all threads stride over the tensor, and the stride is, if one fits, a
/// multiple of the row: a thread then never changes its channel.
struct pass_plan {
  memory_format format = memory_format::channels_first;
  int width = 1;
  std::int64_t packs = 0;
  std::int64_t tile = 0;
  std::int64_t step = 0;
  std::int64_t blocks = 0;

  [[nodiscard]] SYNCNORM_HOST_DEVICE constexpr pack_range
  range_of(std::int64_t block, int thread) const {
    if (format == memory_format::channels_first) {
      auto end = (block + 1) * tile;
      return {block * tile + thread, block_threads, end < packs ? end : packs};
    }
    auto first = block * block_threads + thread;
    return {first, step, first < step ? packs : 0};
  }
};

/// Packs that a thread of an elementwise kernel has in flight at the same time.
[[nodiscard]] SYNCNORM_HOST_DEVICE constexpr int packs_in_flight(int width) {
  return width == 1 ? 4 : 2;
}

namespace partition_detail {

/// The most blocks of an elementwise kernel whose threads stride over the whole
/// tensor: 16 for each multiprocessor of an H100, of which the registers let
/// two to six run at a time.
inline constexpr std::int64_t pass_blocks = 2112;

/// As many blocks as run at a time: four on each multiprocessor, or two where
/// each thread has the constants of eight channels. Beyond that, threads first
/// take more packs, up to `packs_of_thread`: constants are loaded once.
[[nodiscard]] constexpr std::int64_t blocks_of_wave(int width) {
  return width == 8 ? 264 : 528;
}

inline constexpr std::int64_t packs_of_thread = 8;

/// The largest number of threads, up to `threads`, after whose packs the
/// channels repeat, in whole warps; `threads` itself if there is none.
[[nodiscard]] constexpr std::int64_t
repeating_step(std::int64_t threads, std::int64_t channels, int width) {
  constexpr std::int64_t warp = 32;
  auto period = channels / std::gcd(channels, std::int64_t{width});
  if (period > threads)
    return threads;
  auto unit = std::lcm(period, warp);
  return unit > threads ? threads : threads / unit * unit;
}

} // namespace partition_detail

[[nodiscard]] constexpr pass_plan make_pass_plan(const extents& shape,
                                                 int width) {
  using namespace partition_detail;
  auto elements = shape.samples * shape.channels * shape.spatial;
  pass_plan plan{shape.format, width, elements / width};
  std::int64_t flight = packs_in_flight(width);
  if (shape.format == memory_format::channels_first) {
    auto share = plan.packs / (block_threads * plane_blocks);
    // Short enough that the last blocks do not run alone for long.
    auto per_thread = std::clamp(share, flight, 2 * flight);
    plan.tile = block_threads * per_thread;
    plan.blocks = divide_up(plan.packs, plan.tile);
    return plan;
  }
  auto blocks = divide_up(plan.packs, block_threads * flight);
  auto wave = blocks_of_wave(width);
  if (blocks > wave) {
    auto long_blocks = plan.packs / (block_threads * packs_of_thread);
    blocks = std::clamp(long_blocks / wave * wave, wave, pass_blocks);
  }
  plan.step = repeating_step(blocks * block_threads, shape.channels, width);
  plan.blocks = divide_up(plan.step, block_threads);
  return plan;
}

} // namespace syncnorm::cuda
