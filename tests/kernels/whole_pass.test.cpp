// A pass in one call does what its steps do, whether it is taken in blocks of
// channels or not.

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/cases.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// One block, several, an odd rest of channels, short and long planes.
const std::vector<tensor_shape> block_shapes{
    {3, 5, 7}, {4, 40, 1000}, {3, 1030, 49}, {2, 3, 40'001}, {1, 2, 150'000}};
/// Backward, too large for a block.
const tensor_shape large_channels{1, 2, 600'000};
/// For types whose vectors and blocks are cut otherwise.
const std::vector<tensor_shape> more_shapes{
    {3, 5, 7}, {4, 21, 1000}, {3, 300, 49}, {1, 2, 40'001}, {40, 67, 1}};

/// Planes of several blocks, long and short, in samples so far apart that the
/// tensor counts as too large for the caches.
std::vector<layout_case> written_past_the_caches() {
  constexpr std::int64_t apart = std::int64_t{20} << 20;
  std::vector<layout_case> result;
  auto add = [&](dtype type, const tensor_shape& shape, std::int64_t stride,
                 std::size_t skip) {
    result.push_back(
        {{type, shape, memory_format::channels_first, stride, {}}, skip});
  };
  add(dtype::float32, {1, 300, 1003}, apart, 0);
  add(dtype::float32, {1, 3, 70'001}, apart, 5);
  add(dtype::float32, {1, 1200, 499}, apart, 1);
  add(dtype::float32, {3, 130, 1024}, apart / 12 + 3, 0);
  add(dtype::float64, {1, 170, 1001}, apart, 1);
  add(dtype::bfloat16, {1, 4, 150'000}, apart, 0);
  add(dtype::float16, {1, 700, 1017}, apart, 3);
  return result;
}

template <class Body>
void for_each_layout(const std::vector<tensor_shape>& shapes,
                     std::initializer_list<dtype> types, const Body& body) {
  for (const auto& shape : shapes)
    for (auto type : types)
      for (const auto& one : layouts_of(type, shape)) {
        INFO(describe(one.layout));
        body(one);
      }
}

/// Also as on each kind of CPU: blocks are not the same for all.
template <class Body>
void for_each_pass(const Body& body) {
  for_each_cpu([&] {
    for_each_layout(block_shapes, {dtype::float32, dtype::bfloat16}, body);
    for_each_layout(more_shapes, {dtype::float64, dtype::float16}, body);
    layout_case large{{dtype::float32, large_channels, {}, 1'200'000, {}}, 0};
    INFO(describe(large.layout));
    body(large);
  });
}

/// The tensors and arrays of one layer, and both passes over them.
struct layer {
  explicit layer(const layout_case& one)
      : layout{one.layout},
        type{statistics_type(layout.type)},
        channels{layout.shape.channels},
        x{layout, random_values(layout.shape, 70, 1, 2), one.skip},
        dy{layout, random_values(layout.shape, 71, 0.1, 1), one.skip},
        residual{layout, random_values(layout.shape, 72), one.skip},
        y{layout, one.skip},
        dx{layout, one.skip},
        weight{type, random_channels(channels, 73, -2, 2)},
        bias{type, random_channels(channels, 74, -1, 1)},
        mean{type, channels},
        inv_std{type, channels},
        running_mean{type, random_channels(channels, 75, -1, 1)},
        running_var{type, random_channels(channels, 76, 1, 2)},
        sum_dy{type, channels},
        sum_dy_xmu{type, channels},
        weight_grad{type, channels},
        bias_grad{type, channels} {}

  void forward(const execution& run, const fused_tail& tail,
               const tensor_view& out) {
    scratch_memory scratch{batch_norm_forward_workspace(layout)};
    batch_norm_forward(run, x.view(), {.eps = 1e-3, .momentum = 0.25},
                       {mean.data(),
                        inv_std.data(),
                        {running_mean.data(), running_var.data()}},
                       weight.data(), bias.data(), out, tail, scratch.get());
    CHECK(scratch.guards_intact());
  }

  void backward(const execution& run, const std::uint8_t* mask,
                const tensor_view& out, void* residual_grad = nullptr) {
    scratch_memory scratch{batch_norm_backward_workspace(layout)};
    batch_norm_backward(run, dy.view(), x.view(),
                        {mean.data(), inv_std.data(), weight.data()}, mask,
                        {sum_dy.data(), sum_dy_xmu.data(), weight_grad.data(),
                         bias_grad.data()},
                        out, residual_grad, scratch.get());
    CHECK(scratch.guards_intact());
  }

  [[nodiscard]] parameters rounded() const {
    return {mean.get(), inv_std.get(), weight.get(), bias.get()};
  }

  [[nodiscard]] bool guards_intact() const {
    return y.guards_intact() && dx.guards_intact() && mean.guards_intact()
           && inv_std.guards_intact() && running_mean.guards_intact()
           && running_var.guards_intact() && sum_dy.guards_intact()
           && sum_dy_xmu.guards_intact() && weight_grad.guards_intact()
           && bias_grad.guards_intact();
  }

  tensor_layout layout;
  dtype type;
  std::int64_t channels;
  tensor x, dy, residual, y, dx;
  channel_array weight, bias, mean, inv_std, running_mean, running_var, sum_dy,
      sum_dy_xmu, weight_grad, bias_grad;
};

/// Channels whose statistics are not those of x.
int wrong_statistics(const layer& it) {
  auto want = reference_moments(it.x.get());
  auto m2_limit = tolerance::of("batch_moments: m2", it.layout.type);
  auto limit = tolerance::of("batch_moments: mean", it.layout.type)
               + tolerance::of("finalize_moments", it.layout.type);
  auto old_mean = random_channels(it.channels, 75, -1, 1);
  auto old_var = random_channels(it.channels, 76, 1, 2);
  int wrong = 0;
  for (std::int64_t c = 0; c < it.channels; ++c) {
    auto i = std::size_t(c);
    const auto& truth = want[i];
    auto scale = std::abs(truth.mean) + truth.deviation();
    auto var = truth.m2 / real(truth.count);
    auto inv_std = 1 / std::sqrt(var + 1e-3L);
    auto mean = 0.75L * old_mean[i] + 0.25L * truth.mean;
    auto unbiased =
        0.75L * old_var[i] + 0.25L * truth.m2 / real(truth.count - 1);
    auto good = near(it.mean[c], {truth.mean, scale}, limit)
                && near(it.inv_std[c], {inv_std, inv_std}, m2_limit)
                && near(it.running_mean[c], {mean, scale + 1}, limit)
                && near(it.running_var[c], {unbiased, unbiased}, m2_limit);
    wrong += good ? 0 : 1;
  }
  return wrong;
}

/// Elements of y that are not relu(normalized + residual), or not normalized.
int wrong_outputs(const layer& it, const values& x, const values& y,
                  bool with_tail) {
  auto p = it.rounded();
  auto residual = it.residual.get();
  auto limit = tolerance::of("normalize", it.layout.type);
  auto smallest = tolerance::smallest(it.layout.type);
  int wrong = 0;
  y.for_each([&](auto n, auto c, auto s) {
    auto want = reference_normalize(p, std::size_t(c), x.at(n, c, s),
                                    with_tail ? residual.at(n, c, s) : 0);
    if (with_tail)
      want.value = std::max(want.value, real(0));
    wrong += near(y.at(n, c, s), want, limit, smallest) ? 0 : 1;
  });
  return wrong;
}

int wrong_sums(const layer& it, const values& dy) {
  auto want = reference_sums(dy, it.x.get(), it.rounded());
  auto limit = tolerance::of("backward_reduce", it.layout.type);
  int wrong = 0;
  for (std::int64_t c = 0; c < it.channels; ++c) {
    auto [sum_dy, sum_dy_xmu] = want[std::size_t(c)];
    auto inv_std = real(it.inv_std[c]);
    expected weight{sum_dy_xmu.value * inv_std, sum_dy_xmu.scale * inv_std};
    auto good = near(it.sum_dy[c], sum_dy, limit)
                && near(it.bias_grad[c], sum_dy, limit)
                && near(it.sum_dy_xmu[c], sum_dy_xmu, limit)
                && near(it.weight_grad[c], weight, limit);
    wrong += good ? 0 : 1;
  }
  return wrong;
}

int wrong_gradients(const layer& it, const values& dy, const values& dx) {
  auto p = it.rounded();
  auto x = it.x.get();
  auto count = it.layout.shape.per_channel();
  auto limit = tolerance::of("backward_input", it.layout.type);
  auto smallest = tolerance::smallest(it.layout.type);
  int wrong = 0;
  dx.for_each([&](auto n, auto c, auto s) {
    auto want = reference_input_gradient(p, std::size_t(c), dy.at(n, c, s),
                                         x.at(n, c, s), it.sum_dy[c],
                                         it.sum_dy_xmu[c], count);
    wrong += near(dx.at(n, c, s), want, limit, smallest) ? 0 : 1;
  });
  return wrong;
}

/// Elements in which two tensors of one shape differ.
int different(const tensor& a, const tensor& b) {
  auto left = a.get();
  auto right = b.get();
  int result = 0;
  left.for_each([&](auto n, auto c, auto s) {
    result += left.at(n, c, s) == right.at(n, c, s) ? 0 : 1;
  });
  return result;
}

/// Whatever a layer writes.
std::vector<double> all_results(layer& it) {
  std::vector<double> result;
  for (const auto* array :
       {&it.mean, &it.inv_std, &it.running_mean, &it.running_var, &it.sum_dy,
        &it.sum_dy_xmu, &it.weight_grad, &it.bias_grad})
    std::ranges::copy(array->get(), std::back_inserter(result));
  for (const auto* one : {&it.y, &it.dx}) {
    auto all = one->get();
    all.for_each(
        [&](auto n, auto c, auto s) { result.push_back(all.at(n, c, s)); });
  }
  return result;
}

} // namespace

TEST_CASE("a forward pass in one call sets statistics and output") {
  for_each_pass([](const layout_case& one) {
    layer it{one};
    it.forward({}, {}, it.y.view());
    CHECK(wrong_statistics(it) == 0);
    CHECK(wrong_outputs(it, it.x.get(), it.y.get(), false) == 0);
    CHECK(it.guards_intact());
  });
}

TEST_CASE("a forward pass in one call adds a residual, ReLU and its mask") {
  for_each_pass([](const layout_case& one) {
    layer with_mask{one};
    guarded_memory mask{relu_mask_bytes(one.layout)};
    auto* bits = reinterpret_cast<std::uint8_t*>(mask.data());
    with_mask.forward({}, {with_mask.residual.view().data(), true, bits},
                      with_mask.y.view());
    CHECK(wrong_outputs(with_mask, with_mask.x.get(), with_mask.y.get(), true)
          == 0);
    layer without{one};
    without.forward({}, {without.residual.view().data(), true, nullptr},
                    without.y.view());
    CHECK(wrong_outputs(without, without.x.get(), without.y.get(), true) == 0);
    // The mask is what the backward pass takes.
    with_mask.backward({}, bits, with_mask.dx.view());
    auto gradient = with_mask.dy.get();
    auto y = with_mask.y.get();
    y.for_each([&](auto n, auto c, auto s) {
      if (!(y.at(n, c, s) > 0))
        gradient.at(n, c, s) = 0;
    });
    CHECK(wrong_sums(with_mask, gradient) == 0);
    CHECK(wrong_gradients(with_mask, gradient, with_mask.dx.get()) == 0);
    CHECK(mask.guards_intact());
  });
}

TEST_CASE("a backward pass in one call sets sums and gradients") {
  for_each_pass([](const layout_case& one) {
    layer it{one};
    it.forward({}, {}, it.y.view());
    it.backward({}, nullptr, it.dx.view(), it.residual.view().data());
    auto dy = it.dy.get();
    CHECK(wrong_sums(it, dy) == 0);
    CHECK(wrong_gradients(it, dy, it.dx.get()) == 0);
    CHECK(different(it.residual, it.dy) == 0);
    CHECK(it.guards_intact());
  });
}

TEST_CASE("passes whose outputs are too large for the caches are the same") {
  // 20 MiB and more are written past the caches, also channel by channel.
  tensor_shape shape{2, 40, 35'000};
  for (auto format : all_formats) {
    layout_case one{{dtype::float64, shape, format, 40 * 35'000 + 5, {}}, 3};
    INFO(describe(one.layout));
    layer it{one};
    it.forward({}, {}, it.y.view());
    CHECK(wrong_statistics(it) == 0);
    CHECK(wrong_outputs(it, it.x.get(), it.y.get(), false) == 0);
    it.backward({}, nullptr, it.dx.view());
    CHECK(wrong_sums(it, it.dy.get()) == 0);
    CHECK(wrong_gradients(it, it.dy.get(), it.dx.get()) == 0);
    CHECK(it.guards_intact());
  }
}

namespace {

/// dx, then the residual's gradient, in the memory of x, beside `apart`, which
/// has dx in memory of its own.
void check_backward_over_x(const layer& apart, const layout_case& one) {
  layer dx_there{one};
  dx_there.forward({}, {}, dx_there.y.view());
  dx_there.backward({}, nullptr, dx_there.x.view(), dx_there.dy.view().data());
  CHECK(different(apart.dx, dx_there.x) == 0);
  CHECK(different(apart.dy, dx_there.dy) == 0);
  layer residual_there{one};
  residual_there.forward({}, {}, residual_there.y.view());
  residual_there.backward({}, nullptr, residual_there.dy.view(),
                          residual_there.x.view().data());
  CHECK(different(apart.dx, residual_there.dy) == 0);
  CHECK(different(apart.dy, residual_there.x) == 0);
}

} // namespace

TEST_CASE("both passes in one call work in place") {
  for_each_pass([](const layout_case& one) {
    layer apart{one};
    apart.forward({}, {}, apart.y.view());
    apart.backward({}, nullptr, apart.dx.view());
    layer in_place{one};
    in_place.forward({}, {}, in_place.y.view());
    in_place.backward({}, nullptr, in_place.dy.view());
    in_place.forward({}, {}, in_place.x.view());
    CHECK(different(apart.y, in_place.x) == 0);
    CHECK(different(apart.dx, in_place.dy) == 0);
    check_backward_over_x(apart, one);
  });
}

TEST_CASE("a pass that writes past the caches has the bits of one in place") {
  // There, the elements of a block are written while the next one is reduced.
  auto check = [] {
    for (const auto& one : written_past_the_caches()) {
      INFO(describe(one.layout));
      layer apart{one};
      fused_tail tail{apart.residual.view().data(), true, nullptr};
      apart.forward({}, tail, apart.y.view());
      apart.backward({}, nullptr, apart.dx.view(),
                     apart.residual.view().data());
      layer in_place{one};
      tail.residual = in_place.residual.view().data();
      in_place.forward({}, {}, in_place.y.view());
      in_place.backward({}, nullptr, in_place.dy.view(),
                        in_place.dx.view().data());
      in_place.forward({}, tail, in_place.x.view());
      CHECK(different(apart.y, in_place.x) == 0);
      CHECK(different(apart.dx, in_place.dy) == 0);
      CHECK(different(apart.residual, in_place.dx) == 0);
      check_backward_over_x(apart, one);
      CHECK(apart.mean.get() == in_place.mean.get());
      CHECK(apart.inv_std.get() == in_place.inv_std.get());
      CHECK(apart.sum_dy_xmu.get() == in_place.sum_dy_xmu.get());
      CHECK(apart.guards_intact());
      // Without a tail, which is an operation of its own.
      apart.forward({}, {}, apart.y.view());
      layer plain{one};
      plain.forward({}, {}, plain.x.view());
      CHECK(different(apart.y, plain.x) == 0);
    }
  };
  for_each_target([&] { for_each_cpu(check); });
}

TEST_CASE("a pass in one call does not depend on the split, bit for bit") {
  for_each_pass([](const layout_case& one) {
    layer alone{one};
    alone.forward({}, {}, alone.y.view());
    alone.backward({}, nullptr, alone.dx.view());
    for (std::int64_t parts : {2, 3, 33}) {
      INFO(parts, " parts");
      parallel_for split{[](void*, std::int64_t n, parallel_for::body_type body,
                            void* context) {
                           while (n-- > 0)
                             body(context, n);
                         },
                         nullptr, parts};
      layer it{one};
      it.forward({{}, nullptr, &split}, {}, it.y.view());
      it.backward({{}, nullptr, &split}, nullptr, it.dx.view());
      CHECK(all_results(it) == all_results(alone));
    }
  });
}

namespace {

/// Runs the parts one after the other, from the last one to the first, and
/// counts how many of them change an element of dx.
struct write_watch {
  explicit write_watch(const layer& of) : it{of}, writers{of.layout.shape} {}

  const layer& it;
  values writers;

  static void run(void* self, std::int64_t parts, parallel_for::body_type body,
                  void* context) {
    auto& watch = *static_cast<write_watch*>(self);
    while (parts-- > 0) {
      auto before = watch.it.dx.get();
      body(context, parts);
      auto after = watch.it.dx.get();
      after.for_each([&](auto n, auto c, auto s) {
        if (before.at(n, c, s) != after.at(n, c, s))
          ++watch.writers.at(n, c, s);
      });
    }
  }
};

} // namespace

TEST_CASE("each element of dx that is written past the caches is written by "
          "one part") {
  for_each_cpu([] {
    layer it{written_past_the_caches().front()};
    it.forward({}, {}, it.y.view());
    write_watch watch{it};
    parallel_for split{write_watch::run, &watch, 3};
    it.backward({{}, nullptr, &split}, nullptr, it.dx.view());
    int wrong = 0;
    watch.writers.for_each([&](auto n, auto c, auto s) {
      wrong += watch.writers.at(n, c, s) == 1 ? 0 : 1;
    });
    CHECK(wrong == 0);
  });
}

TEST_CASE("passes over an empty batch set what their steps set") {
  for (tensor_shape shape : {tensor_shape{0, 3, 4}, {2, 3, 0}}) {
    auto layout =
        make_layout(dtype::float32,
                    std::vector{shape.samples, shape.channels, shape.spatial});
    channel_array first{dtype::float32, 3};
    channel_array second{dtype::float32, 3};
    channel_array running_mean{dtype::float32, {1, 2, 3}};
    channel_array running_var{dtype::float32, {4, 5, 6}};
    batch_norm_forward({}, {nullptr, layout}, {.eps = 0.25},
                       {first.data(),
                        second.data(),
                        {running_mean.data(), running_var.data()}},
                       nullptr, nullptr, {nullptr, layout}, {}, {});
    CHECK(first.get() == std::vector<double>{0, 0, 0});
    CHECK(second.get() == std::vector<double>{2, 2, 2});
    CHECK(running_mean.get() == std::vector<double>{1, 2, 3});
    CHECK(running_var.get() == std::vector<double>{4, 5, 6});
    channel_array sum_dy{dtype::float32, 3};
    channel_array sum_dy_xmu{dtype::float32, 3};
    batch_norm_backward({}, {nullptr, layout}, {nullptr, layout},
                        {first.data(), second.data()}, nullptr,
                        {sum_dy.data(), sum_dy_xmu.data()}, {nullptr, layout},
                        nullptr, {});
    CHECK(sum_dy.get() == std::vector<double>{0, 0, 0});
    CHECK(sum_dy_xmu.get() == std::vector<double>{0, 0, 0});
  }
}
