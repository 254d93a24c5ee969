// A call that is split over threads gives the bits of one that is not.

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>
#include <tuple>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Runs each part on a thread of its own.
void on_threads(void*, std::int64_t parts, parallel_for::body_type body,
                void* context) {
  std::vector<std::jthread> threads;
  for (std::int64_t i = 0; i < parts; ++i)
    threads.emplace_back(body, context, i);
}

/// Everything that a layer writes, as bytes.
using bytes = std::vector<std::byte>;

void append(bytes& out, const void* data, std::size_t size) {
  const auto* first = static_cast<const std::byte*>(data);
  out.insert(out.end(), first, first + size);
}

struct memory {
  explicit memory(const tensor_layout& layout)
      : size{std::size_t(layout.shape.samples * layout.sample_stride)
             * size_of(layout.type)},
        bytes_(size) {}

  std::size_t size;
  std::vector<std::byte> bytes_;
};

/// All operations on one tensor, forward and backward.
bytes all_results(const layout_case& one, const execution& run) {
  const auto& layout = one.layout;
  auto type = statistics_type(layout.type);
  auto count = layout.shape.channels;
  bytes result;
  tensor x{layout, random_values(layout.shape, 60, 1, 2), one.skip};
  tensor dy{layout, random_values(layout.shape, 61), one.skip};
  channel_array mean{type, count};
  channel_array inv_std{type, count};
  channel_array sum_dy{type, count};
  channel_array sum_dy_xmu{type, count};
  scratch_memory scratch{batch_moments_workspace(layout)};
  moments_view moments{0, mean.data(), inv_std.data(), count, type, {}};
  batch_moments(run, x.view(), moments, scratch.get());
  append(result, mean.data(), std::size_t(count) * size_of(type));
  append(result, inv_std.data(), std::size_t(count) * size_of(type));
  finalize_moments(run, moments, {}, mean.data(), inv_std.data(), {});
  guarded_memory mask{relu_mask_bytes(layout)};
  std::memset(mask.data(), 0, mask.size());
  fused_tail tail{nullptr, true, reinterpret_cast<std::uint8_t*>(mask.data())};
  auto out = layout;
  out.sample_stride = count * layout.shape.spatial;
  memory y{out};
  normalize(run, x.view(), {mean.data(), inv_std.data()},
            {y.bytes_.data(), out}, tail);
  append(result, y.bytes_.data(), y.size);
  append(result, mask.data(), mask.size());
  backward_reduce(run, dy.view(), x.view(), {mean.data()}, tail.mask,
                  {sum_dy.data(), sum_dy_xmu.data()}, scratch.get());
  append(result, sum_dy.data(), std::size_t(count) * size_of(type));
  append(result, sum_dy_xmu.data(), std::size_t(count) * size_of(type));
  backward_input(run, dy.view(), x.view(), {mean.data(), inv_std.data()},
                 {sum_dy.data(), sum_dy_xmu.data(), layout.shape.per_channel()},
                 tail.mask, {y.bytes_.data(), out});
  append(result, y.bytes_.data(), y.size);
  CHECK(mask.guards_intact());
  CHECK(scratch.guards_intact());
  return result;
}

} // namespace

TEST_CASE("results do not depend on the split, bit for bit") {
  for (tensor_shape shape : {tensor_shape{1, 1, 1},
                             {3, 5, 7},
                             {7, 13, 49},
                             {2, 3, 513},
                             {70, 200, 1},
                             {40, 130, 500},
                             {8, 4, 70'000},
                             {3, 3, 350'000},
                             {3, 1, 800'001},
                             {1, 1, 4'200'000},
                             {5, 2050, 3}})
    for (const auto& one : layouts_of(dtype::float32, shape)) {
      INFO(describe(one.layout));
      auto alone = all_results(one, {});
      for (std::int64_t parts : {1, 2, 3, 8, 33}) {
        INFO(parts, " parts");
        parallel_for split{on_threads, nullptr, parts};
        CHECK(all_results(one, {{}, nullptr, &split}) == alone);
      }
    }
}

TEST_CASE("a call is cut into no more parts than asked for") {
  struct counter {
    std::int64_t most = 0;
    std::int64_t calls = 0;
  } seen;
  parallel_for split{[](void* self, std::int64_t parts,
                        parallel_for::body_type body, void* context) {
                       auto& all = *static_cast<counter*>(self);
                       all.most = std::max(all.most, parts);
                       ++all.calls;
                       for (std::int64_t i = parts; i-- > 0;)
                         body(context, i);
                     },
                     &seen, 4};
  layout_case one{{dtype::float32, {8, 16, 5000}, {}, 80'000, {}}, 0};
  CHECK(all_results(one, {{}, nullptr, &split}) == all_results(one, {}));
  CHECK(seen.most == 4);
  CHECK(seen.calls == 4);
}

TEST_CASE("a split into any number of parts is one into as many as there are "
          "tasks") {
  tensor_layout layout{dtype::float32, {8, 4, 70'000}, {}, 280'000, {}};
  tensor x{layout, random_values(layout.shape, 63, 1, 2)};
  scratch_memory scratch{batch_moments_workspace(layout)};
  auto most_parts = [&](std::int64_t asked) {
    std::int64_t most = 0;
    parallel_for split{[](void* self, std::int64_t parts,
                          parallel_for::body_type body, void* context) {
                         *static_cast<std::int64_t*>(self) = parts;
                         for (std::int64_t i = 0; i < parts; ++i)
                           body(context, i);
                       },
                       &most, asked};
    channel_array mean{dtype::float32, 4};
    channel_array m2{dtype::float32, 4};
    moments_view out{0, mean.data(), m2.data(), 4, dtype::float32, {}};
    batch_moments({{}, nullptr, &split}, x.view(), out, scratch.get());
    return std::tuple{most, mean.get(), m2.get()};
  };
  auto all = most_parts(std::numeric_limits<std::int64_t>::max());
  // Two slabs of four channels.
  CHECK(std::get<0>(all) == 8);
  CHECK(all == most_parts(64));
}

TEST_CASE("rows that are folded are not cut by their channels") {
  // Of two cache lines each, in one slab. The parts of a row would share the
  // sums of the rows that are taken for one.
  for (std::int64_t channels : {65, 100, 127}) {
    tensor_layout layout{dtype::float32,
                         {70, channels, 9},
                         memory_format::channels_last,
                         channels * 9,
                         {}};
    tensor x{layout, random_values(layout.shape, 64, 1, 2)};
    scratch_memory scratch{batch_moments_workspace(layout)};
    std::int64_t most = 1;
    parallel_for split{[](void* self, std::int64_t parts,
                          parallel_for::body_type body, void* context) {
                         *static_cast<std::int64_t*>(self) = parts;
                         for (std::int64_t i = 0; i < parts; ++i)
                           body(context, i);
                       },
                       &most, 8};
    channel_array mean{dtype::float32, channels};
    channel_array m2{dtype::float32, channels};
    moments_view out{0, mean.data(), m2.data(), channels, dtype::float32, {}};
    batch_moments({{}, nullptr, &split}, x.view(), out, scratch.get());
    INFO(channels, " channels");
    CHECK(most == 1);
  }
}

TEST_CASE("a single channel is cut as well") {
  struct counter {
    std::int64_t fewest = 4;
    std::int64_t calls = 0;
  };
  for (tensor_shape shape : {tensor_shape{4, 1, 1 << 20}, {1, 1, 1 << 22}})
    for (auto format : all_formats) {
      counter seen;
      parallel_for split{[](void* self, std::int64_t parts,
                            parallel_for::body_type body, void* context) {
                           auto& all = *static_cast<counter*>(self);
                           all.fewest = std::min(all.fewest, parts);
                           ++all.calls;
                           for (std::int64_t i = parts; i-- > 0;)
                             body(context, i);
                         },
                         &seen, 4};
      tensor_layout layout{dtype::float32, shape, format, shape.spatial, {}};
      std::ignore = all_results({layout, 0}, {{}, nullptr, &split});
      INFO(describe(layout));
      CHECK(seen.fewest == 4);
      CHECK(seen.calls == 4);
    }
}

namespace {

/// Runs the parts one after the other and sees which words of a mask each has
/// changed.
struct word_watch {
  const guarded_memory& mask;
  std::vector<int> writers = std::vector<int>(mask.size() / 8);

  static void run(void* self, std::int64_t parts, parallel_for::body_type body,
                  void* context) {
    auto& watch = *static_cast<word_watch*>(self);
    for (std::int64_t part = 0; part < parts; ++part) {
      std::vector<std::byte> before(watch.mask.data(),
                                    watch.mask.data() + watch.mask.size());
      body(context, part);
      for (std::size_t i = 0; i < watch.writers.size(); ++i)
        if (std::memcmp(before.data() + 8 * i, watch.mask.data() + 8 * i, 8)
            != 0)
          ++watch.writers[i];
    }
  }
};

} // namespace

TEST_CASE("no two parts write to the same word of a mask") {
  for (tensor_shape shape :
       {tensor_shape{70, 5, 7}, {7, 13, 49}, {70, 201, 1}, {2, 67, 513}})
    for (const auto& one : layouts_of(dtype::float32, shape)) {
      INFO(describe(one.layout));
      tensor x{one.layout, random_values(shape, 62), one.skip};
      tensor y{one.layout};
      channel_array zero{dtype::float32,
                         std::vector(std::size_t(shape.channels), 0.0)};
      channel_array unit{dtype::float32,
                         std::vector(std::size_t(shape.channels), 1.0)};
      guarded_memory mask{relu_mask_bytes(one.layout)};
      fused_tail tail{nullptr, true,
                      reinterpret_cast<std::uint8_t*>(mask.data())};
      channel_parameters k{zero.data(), unit.data()};
      normalize({}, x.view(), k, y.view(), tail);
      // Now every bit that is written is changed.
      for (std::size_t i = 0; i < mask.size(); ++i)
        mask.data()[i] = ~mask.data()[i];
      word_watch watch{mask};
      parallel_for split{word_watch::run, &watch, 5};
      normalize({{}, nullptr, &split}, x.view(), k, y.view(), tail);
      CHECK(*std::ranges::min_element(watch.writers) == 1);
      CHECK(*std::ranges::max_element(watch.writers) == 1);
    }
}
