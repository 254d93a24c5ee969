// No operation reads or writes beside its arguments, or writes what it is to
// read: each array lies against a page that nobody may touch.

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/cases.hpp"
#include "tests/kernels/fenced_memory.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Arrays for the arguments of one case after the other.
class arena {
public:
  /// What follows is for another case; what was given out is not used any more.
  void begin(fenced_side side) {
    side_ = side;
    taken_ = 0;
  }

  void* output(std::size_t bytes, std::size_t alignment) {
    const auto& memory = take(bytes);
    return memory.to_write(memory.place(bytes, alignment, side_));
  }

  /// In `rows` that begin `stride` bytes apart each of `width` bytes is 0x3c:
  /// small positive numbers of all types.
  const void* input(std::size_t bytes, std::size_t alignment, std::size_t rows,
                    std::size_t stride, std::size_t width) {
    const auto& memory = take(bytes);
    auto begin = memory.place(bytes, alignment, side_);
    for (std::size_t i = 0; i < rows; ++i)
      std::memset(memory.to_write(begin + i * stride), 0x3c, width);
    return memory.to_read(begin);
  }

  const void* input(std::size_t bytes, std::size_t alignment) {
    return input(bytes, alignment, 1, 0, bytes);
  }

private:
  const fenced_memory& take(std::size_t bytes) {
    if (taken_ == slots_.size())
      slots_.push_back(nullptr);
    auto& slot = slots_[taken_++];
    if (!slot || slot->size() < bytes)
      slot = std::make_unique<fenced_memory>(2 * bytes + 1);
    return *slot;
  }

  fenced_side side_ = fenced_side::behind;
  std::size_t taken_ = 0;
  std::vector<std::unique_ptr<fenced_memory>> slots_;
};

std::size_t bytes_of(const tensor_layout& x) {
  auto [n, c, s] = x.shape;
  return n == 0
             ? 0
             : std::size_t((n - 1) * x.sample_stride + c * s) * size_of(x.type);
}

/// The arguments of all operations for tensors of one layout.
struct layer {
  layer(arena& memory, const tensor_layout& of)
      : layout{of},
        type{statistics_type(of.type)},
        memory_{memory} {}

  [[nodiscard]] const_tensor_view input() const {
    auto size = size_of(layout.type);
    auto [n, c, s] = layout.shape;
    return {memory_.input(bytes_of(layout), size, std::size_t(n),
                          std::size_t(layout.sample_stride) * size,
                          std::size_t(c * s) * size),
            layout};
  }
  [[nodiscard]] tensor_view output() const {
    return {memory_.output(bytes_of(layout), size_of(layout.type)), layout};
  }
  [[nodiscard]] const void* values() const {
    return memory_.input(channel_bytes(), size_of(type));
  }
  [[nodiscard]] void* results() const {
    return results_of(type);
  }
  [[nodiscard]] void* results_of(dtype kind) const {
    return memory_.output(std::size_t(layout.shape.channels) * size_of(kind),
                          size_of(kind));
  }
  [[nodiscard]] channel_parameters parameters() const {
    return {values(), values(), values(), values()};
  }
  [[nodiscard]] const std::uint8_t* mask() const {
    return static_cast<const std::uint8_t*>(
        memory_.input(relu_mask_bytes(layout), 8));
  }
  [[nodiscard]] fused_tail tail() const {
    return {
        input().data(), true,
        static_cast<std::uint8_t*>(memory_.output(relu_mask_bytes(layout), 8))};
  }
  [[nodiscard]] backward_sums sums() const {
    return {results(), results(), results(), results()};
  }
  [[nodiscard]] workspace scratch(std::size_t bytes) const {
    return {memory_.output(bytes, 16), bytes};
  }
  /// To be written, of numbers that can be read.
  [[nodiscard]] running_view running() const {
    auto make = [&] {
      auto* result = results();
      std::memset(result, 0x3c, channel_bytes());
      return result;
    };
    return {make(), make()};
  }

  tensor_layout layout;
  dtype type;

private:
  [[nodiscard]] std::size_t channel_bytes() const {
    return std::size_t(layout.shape.channels) * size_of(type);
  }

  arena& memory_;
};

/// Calls `body(layer)` with arguments that are fenced behind, then before.
template <class Body>
void for_each_fence(const tensor_layout& layout, const Body& body) {
  static arena memory;
  for (auto side : {fenced_side::behind, fenced_side::before}) {
    INFO("fenced ", side == fenced_side::behind ? "behind" : "before");
    memory.begin(side);
    body(layer{memory, layout});
  }
}

/// Calls `body(layer)` for all layouts, instruction sets and kinds of CPU.
template <class Body>
void for_each_layer(const Body& body) {
  for_each_case(small_shapes, [&](const layout_case& one) {
    for_each_fence(one.layout, body);
  });
}

/// As `for_each_layer`, with tensors that count as too large for the caches,
/// and with those of several parts.
template <class Body>
void for_each_large_layer(const Body& body) {
  for_each_cpu([&] {
    for (auto type : all_types) {
      for (const auto& one : far_apart(type))
        for_each_fence(one.layout, body);
      for (const auto& shape : {large_shapes[0], large_shapes[3]})
        for (const auto& one : layouts_of(type, shape))
          for_each_fence(one.layout, body);
    }
  });
}

void reduce(const layer& of) {
  moments_view moments{
      0, of.results(), of.results(), of.layout.shape.channels, of.type, {}};
  batch_moments({}, of.input(), moments,
                of.scratch(batch_moments_workspace(of.layout)));
  CHECK(moments.count == of.layout.shape.per_channel());
  for (const auto* mask :
       {of.mask(), static_cast<const std::uint8_t*>(nullptr)})
    backward_reduce({}, of.input(), of.input(), of.parameters(), mask,
                    of.sums(),
                    of.scratch(backward_reduce_workspace(of.layout)));
}

void normalize_all(const layer& of) {
  for (const auto& tail : {of.tail(), fused_tail{}, fused_tail{nullptr, true},
                           fused_tail{of.input().data(), false}})
    normalize({}, of.input(), of.parameters(), of.output(), tail);
  normalize({}, of.input(), {of.values(), of.values(), nullptr, nullptr},
            of.output());
  normalize_eval({}, of.input(), {of.values(), of.values()}, 1e-5,
                 eps_mode::plus, of.parameters(), of.output(), of.tail());
}

void differentiate(const layer& of) {
  for (const auto* mask :
       {of.mask(), static_cast<const std::uint8_t*>(nullptr)})
    for (auto* residual_grad :
         {of.output().data(), static_cast<void*>(nullptr)})
      backward_input({}, of.input(), of.input(), of.parameters(),
                     {of.values(), of.values(), of.layout.shape.per_channel()},
                     mask, of.output(), residual_grad);
  backward_input_eval({}, of.input(), {nullptr, of.values()}, 1e-5,
                      eps_mode::plus, of.parameters(), of.mask(), of.output(),
                      of.output().data());
}

void whole_passes(const layer& of) {
  for (const auto& tail : {of.tail(), fused_tail{}})
    batch_norm_forward({}, of.input(), {},
                       {of.results(), of.results(), of.running()}, of.values(),
                       of.values(), of.output(), tail,
                       of.scratch(batch_norm_forward_workspace(of.layout)));
  for (const auto* mask :
       {of.mask(), static_cast<const std::uint8_t*>(nullptr)})
    batch_norm_backward({}, of.input(), of.input(), of.parameters(), mask,
                        of.sums(), of.output(),
                        mask != nullptr ? of.output().data() : nullptr,
                        of.scratch(batch_norm_backward_workspace(of.layout)));
}

/// A tensor of so many channels, for operations on arrays of them.
tensor_layout channels_alone(dtype type, std::int64_t channels) {
  return {type, {1, channels, 1}, {}, channels, {}};
}

void merge_all(const layer& of) {
  auto channels = of.layout.shape.channels;
  auto part = [&] {
    return const_moments_view{3,        of.values(), of.values(),
                              channels, of.type,     {}};
  };
  const std::vector<const_moments_view> parts{part(), part(), part()};
  moments_view total{0, of.results(), of.results(), channels, of.type, {}};
  merge_moments({}, parts, total);
  finalize_moments({}, part(), {}, of.results(), of.results(), of.running());
  const std::vector<const void*> arrays{of.values(), of.values(), of.values()};
  add_arrays({}, arrays, channels, of.type, of.results());
  clear_clamped({}, of.values(), 1e-5, channels, of.type, of.results());
  if (of.type == dtype::float64)
    round_array({}, static_cast<const double*>(of.values()), channels,
                static_cast<float*>(of.results_of(dtype::float32)));
}

} // namespace

TEST_CASE("a reduction touches nothing beside its arguments") {
  for_each_layer(reduce);
  for_each_large_layer(reduce);
}

TEST_CASE("a normalization touches nothing beside its arguments") {
  for_each_layer(normalize_all);
  for_each_large_layer(normalize_all);
}

TEST_CASE("an input gradient touches nothing beside its arguments") {
  for_each_layer(differentiate);
  for_each_large_layer(differentiate);
}

TEST_CASE("a pass in one call touches nothing beside its arguments") {
  for_each_layer(whole_passes);
  for_each_large_layer(whole_passes);
}

TEST_CASE("operations on channels touch nothing beside their arguments") {
  for_each_target([] {
    for (auto type : {dtype::float32, dtype::float64})
      for (std::int64_t channels :
           {1,  2,  3,  4,  5,  7,  8,   9,   15,  16,  17,
            31, 32, 33, 63, 64, 65, 511, 512, 513, 1025})
        for_each_fence(channels_alone(type, channels), merge_all);
  });
}
