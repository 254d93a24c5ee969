#pragma once

// The elementwise passes: from a pack of elements to the pack that is stored,
// and the loop of one thread.

#include "kernels/backend.hpp"
#include "kernels/cuda/alignment.hpp"
#include "kernels/cuda/gapped.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/partition.hpp"
#include "kernels/elements.hpp"

#include <cstdint>
#include <initializer_list>

namespace syncnorm::cuda {

/// Finds sample and channel of an element from its flat index.
struct flat_index {
  sample_index samples;
  divisor spatial;
  divisor channels;

  flat_index() = default;

  flat_index(const extents& shape, bool dense)
      : samples{divisor{shape.channels * shape.spatial}, dense},
        spatial{shape.spatial},
        channels{shape.channels} {}
};

/// A `channel_normalizer` with pointers to the tensor's statistics type.
template <class Real>
struct channel_arrays {
  const Real* mean = nullptr;
  const Real* spread = nullptr;
  const Real* weight = nullptr;
  const Real* bias = nullptr;
  Real eps = 0;
  eps_mode mode = eps_mode::plus;
  bool is_variance = false;
  /// Packs begin with a channel whose values are on 16-byte boundaries, and do
  /// not reach past the last channel.
  bool whole_runs = false;

  /// @param others  further arrays of the pass, or null.
  channel_arrays(const channel_normalizer& from, std::int64_t channels,
                 int width, std::initializer_list<const void*> others)
      : mean{static_cast<const Real*>(from.mean)},
        spread{static_cast<const Real*>(from.spread)},
        weight{static_cast<const Real*>(from.weight)},
        bias{static_cast<const Real*>(from.bias)},
        eps{Real(from.eps)},
        mode{from.mode},
        is_variance{from.is_variance},
        whole_runs{channels % width == 0
                   && start_aligned({mean, spread, weight, bias})
                   && start_aligned(others)} {}

  /// @tparam Plain  the spread is known not to be a variance.
  /// @param read  returns the value of an array for the channel.
  template <bool Plain, class Read>
  [[nodiscard]] SYNCNORM_HOST_DEVICE Real inv_std(const Read& read) const {
    return !Plain && is_variance
               ? math::inverse_deviation(read(spread), eps, mode)
               : read(spread);
  }

  template <bool Plain, class Read>
  [[nodiscard]] SYNCNORM_HOST_DEVICE Real scale(const Read& read) const {
    auto inverse = inv_std<Plain>(read);
    return weight == nullptr ? inverse : inverse * read(weight);
  }
};

/// The constants of the channels that a thread is at: in a plane, of one
/// channel; in a row, of one for each element of the pack.
template <class Pass>
struct known_constants {
  static constexpr int size =
      Pass::format == memory_format::channels_first ? 1 : Pass::width;

  std::int64_t channel = -1;
  typename Pass::constants values[size];
};

/// Reads the `k`-th of neighbouring values in each array that it is given; a
/// thread that reads all of them loads by vectors.
template <class Real>
struct read_of_run {
  std::int64_t first;
  int k;

  SYNCNORM_HOST_DEVICE Real operator()(const Real* array) const {
    constexpr int wide = vector_bytes / int(sizeof(Real));
    return load_pack<wide>(array + first + k / wide * wide).values[k % wide];
  }
};

/// Reads the value of one channel.
template <class Real>
struct read_of_channel {
  std::int64_t channel;

  SYNCNORM_HOST_DEVICE Real operator()(const Real* array) const {
    return array[channel];
  }
};

/// The constants of the channels of a pack, the first of which is `channel`.
template <class Pass>
SYNCNORM_HOST_DEVICE void
open_row(const Pass& pass, std::int64_t channel,
         typename Pass::constants (&values)[Pass::width]) {
  using real = typename Pass::real;
  constexpr int width = Pass::width;
  if constexpr (width > 1)
    if (pass.channel.whole_runs) {
      SYNCNORM_UNROLL
      for (int k = 0; k < width; ++k)
        values[k] = pass.open(read_of_run<real>{channel, k});
      return;
    }
  SYNCNORM_UNROLL
  for (int k = 0; k < width; ++k) {
    values[k] = pass.open(read_of_channel<real>{channel});
    channel = channel + 1 == pass.index.channels.value() ? 0 : channel + 1;
  }
}

/// Calls `apply(k, constants)` for each element k of the pack at `flat`.
template <class Pass, class Apply>
SYNCNORM_HOST_DEVICE void for_each_element(const Pass& pass, std::int64_t flat,
                                           known_constants<Pass>& known,
                                           const Apply& apply) {
  constexpr int width = Pass::width;
  using read = read_of_channel<typename Pass::real>;
  const auto& index = pass.index;
  if constexpr (Pass::format == memory_format::channels_first) {
    auto plane = index.spatial.quotient(flat);
    auto channel = index.channels.remainder(plane);
    auto s = flat - plane * index.spatial.value();
    if (s + width <= index.spatial.value()) {
      if (known.channel != channel) {
        known.channel = channel;
        known.values[0] = pass.open(read{channel});
      }
      SYNCNORM_UNROLL
      for (int k = 0; k < width; ++k)
        apply(k, known.values[0]);
    } else {
      // The pack lies across planes.
      SYNCNORM_UNROLL
      for (int k = 0; k < width; ++k) {
        apply(k, pass.open(read{channel}));
        if (++s == index.spatial.value()) {
          s = 0;
          channel = channel + 1 == index.channels.value() ? 0 : channel + 1;
        }
      }
    }
  } else {
    auto channel = index.channels.remainder(flat);
    if (known.channel != channel) {
      known.channel = channel;
      open_row(pass, channel, known.values);
    }
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k)
      apply(k, known.values[k]);
  }
}

/// Stores the mask bits of the pack at `flat`. All threads of a warp call it
/// together, those without a pack with `valid` false; neighbours combine their
/// bits into a byte, and the first of them writes it.
template <int Width>
SYNCNORM_HOST_DEVICE void store_mask(std::uint8_t* mask, std::int64_t flat,
                                     unsigned bits, bool valid) {
  auto byte = valid ? bits << unsigned(flat % 8) : 0u;
#ifdef __CUDA_ARCH__
  SYNCNORM_UNROLL
  for (int distance = 1; distance < 8 / Width; distance *= 2)
    byte |= __shfl_xor_sync(0xffffffffu, byte, distance);
  if (valid && flat % 8 == 0)
    mask[flat / 8] = std::uint8_t(byte);
#else
  // One thread after the other: the first clears the byte.
  if (valid)
    mask[flat / 8] = std::uint8_t(flat % 8 == 0 ? byte : mask[flat / 8] | byte);
#endif
}

// A pass is `Plain` if nothing is fused with it, its tensors are all there and
// have no gaps, and the spread is the inverse standard deviation. The checks of
// other passes for each element take more than half of their instructions.

/// y = relu((x - mean) * scale + bias + residual)
template <class T, int Width, memory_format Format, bool Plain>
struct normalize_pass {
  static constexpr int width = Width;
  static constexpr memory_format format = Format;

  using real = arithmetic_t<T>;
  using constants = math::normalize_constants<real>;

  struct input {
    pack<T, Width> x;
    pack<T, Width> residual;
  };

  flat_index index;
  gapped<const T> x;
  gapped<const T> residual;
  gapped<T> y;
  channel_arrays<real> channel;
  std::uint8_t* mask = nullptr;
  bool relu = false;

  template <class Read>
  [[nodiscard]] SYNCNORM_HOST_DEVICE constants open(const Read& read) const {
    return {read(channel.mean), channel.template scale<Plain>(read),
            channel.bias == nullptr ? real(0) : read(channel.bias)};
  }

  [[nodiscard]] SYNCNORM_HOST_DEVICE input load(std::int64_t flat) const {
    input in;
    in.x = load_pack<Width>(x.template at<Plain>(index.samples, flat));
    if (!Plain && residual.data != nullptr)
      in.residual =
          load_pack<Width>(residual.template at<Plain>(index.samples, flat));
    return in;
  }

  SYNCNORM_HOST_DEVICE void
  store(std::int64_t flat, const input& in, bool valid,
        known_constants<normalize_pass>& known) const {
    unsigned bits = 0;
    if (valid) {
      pack<T, Width> out;
      for_each_element(
          *this, flat, known, [&](int k, const constants& known_here) {
            auto value = elements::normalized(widen<real>(in.x.values[k]),
                                              known_here.mean, known_here.scale,
                                              known_here.bias);
            if (!Plain && residual.data != nullptr)
              value += widen<real>(in.residual.values[k]);
            bits |= unsigned(value > 0) << k;
            // NaN is not below zero and stays.
            if (!Plain && relu && value <= 0)
              value = 0;
            narrow(value, out.values[k]);
          });
      store_pack<Width>(y.template at<Plain>(index.samples, flat), out);
    }
    if (!Plain && mask != nullptr)
      store_mask<Width>(mask, flat, bits, valid);
  }
};

/// dx = (dy - mean_dy - (x - mean) * projection) * scale, or, without x,
/// dx = dy * scale; dy masked first.
template <class T, int Width, memory_format Format, bool Plain>
struct backward_pass {
  static constexpr int width = Width;
  static constexpr memory_format format = Format;

  using real = arithmetic_t<T>;
  using constants = math::backward_constants<real>;

  struct input {
    pack<T, Width> dy;
    pack<T, Width> x;
    unsigned bits;
  };

  flat_index index;
  gapped<const T> dy;
  gapped<const T> x;
  gapped<T> dx;
  gapped<T> residual_grad;
  channel_arrays<real> channel;
  const std::uint8_t* mask = nullptr;
  const real* sum_dy = nullptr;
  const real* sum_dy_xmu = nullptr;
  /// 1 / (elements of a channel over all replicas)
  real share = 0;

  template <class Read>
  [[nodiscard]] SYNCNORM_HOST_DEVICE constants open(const Read& read) const {
    if (!Plain && x.data == nullptr)
      return {0, 0, 0, channel.template scale<Plain>(read)};
    return math::backward_constants_by_share(
        read(channel.mean), channel.template inv_std<Plain>(read),
        channel.weight == nullptr ? real(1) : read(channel.weight),
        read(sum_dy), read(sum_dy_xmu), share);
  }

  [[nodiscard]] SYNCNORM_HOST_DEVICE input load(std::int64_t flat) const {
    input in;
    in.dy = load_pack<Width>(dy.template at<Plain>(index.samples, flat));
    if (Plain || x.data != nullptr)
      in.x = load_pack<Width>(x.template at<Plain>(index.samples, flat));
    in.bits = Plain || mask == nullptr ? ~0u : mask_bits(mask, flat);
    return in;
  }

  SYNCNORM_HOST_DEVICE void store(std::int64_t flat, const input& in,
                                  bool valid,
                                  known_constants<backward_pass>& known) const {
    if (!valid)
      return;
    pack<T, Width> out;
    pack<T, Width> masked;
    for_each_element(
        *this, flat, known, [&](int k, const constants& known_here) {
          auto kept = (in.bits >> k & 1u) != 0;
          auto gradient = kept ? widen<real>(in.dy.values[k]) : real(0);
          narrow(gradient, masked.values[k]);
          auto value = !Plain && x.data == nullptr
                           ? gradient * known_here.scale
                           : elements::input_gradient(
                               gradient, widen<real>(in.x.values[k]),
                               known_here.mean, known_here.mean_dy,
                               known_here.projection, known_here.scale);
          narrow(value, out.values[k]);
        });
    store_pack<Width>(dx.template at<Plain>(index.samples, flat), out);
    if (!Plain && residual_grad.data != nullptr)
      store_pack<Width>(residual_grad.template at<Plain>(index.samples, flat),
                        masked);
  }
};

/// All that one thread of an elementwise kernel does. Every input of a round
/// is loaded before the first output is stored, and each thread touches its
/// own elements only, so that an output may be the memory of an input.
template <class Pass>
SYNCNORM_HOST_DEVICE void run_pass(const Pass& pass, const pack_range& range,
                                   int lane) {
  constexpr int flight = packs_in_flight(Pass::width);
  known_constants<Pass> known;
  for (auto next = range.first; next - lane < range.end;
       next += flight * range.step) {
    typename Pass::input in[flight];
    SYNCNORM_UNROLL
    for (int i = 0; i < flight; ++i)
      if (next + i * range.step < range.end)
        in[i] = pass.load((next + i * range.step) * Pass::width);
    SYNCNORM_UNROLL
    for (int i = 0; i < flight; ++i) {
      auto here = next + i * range.step;
      pass.store(here * Pass::width, in[i], here < range.end, known);
    }
  }
}

} // namespace syncnorm::cuda
