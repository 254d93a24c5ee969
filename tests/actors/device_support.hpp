#pragma once

// What the tests of copies on devices share.

#include "syncnorm/batch_norm_stage.hpp"
#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/device_tensors.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// How far float32 and float64 statistics may be from the truth, for values and
/// sums of the sizes below.
inline double tolerance_of(dtype type) {
  return type == dtype::float64 ? 1e-10 : 2e-5;
}

inline void check_near(const tensor& got, const tensor& want,
                       double tolerance) {
  REQUIRE(got.layout.shape == want.layout.shape);
  reference::for_each({want}, [&](auto, auto, auto i) {
    auto distance = std::abs(got.get(i) - want.get(i));
    if (!(distance <= tolerance * (1 + std::abs(want.get(i)))))
      FAIL_CHECK("got " << got.get(i) << ", want " << want.get(i));
  });
}

inline void check_near(const std::vector<double>& got,
                       const std::vector<double>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= tolerance * (1 + std::abs(want[i]))))
      FAIL_CHECK("got " << got[i] << ", want " << want[i]);
}

/// A step of several copies, compared with one device on the whole batch.
class device_step {
public:
  device_step(const batch_norm_options& options,
              const std::vector<std::int64_t>& samples, unsigned seed)
      : options_{options} {
    std::mt19937 random{seed};
    for (auto n : samples) {
      std::array sizes{n, options.channels, std::int64_t{6}};
      auto layout = make_layout(options.type, sizes);
      for (auto* list : {&xs, &dys})
        list->emplace_back(layout);
      fill(xs.back(), random, 3, 2);
      fill(dys.back(), random);
      // One channel varies less than eps, for eps_mode::clamp.
      for (std::int64_t s = 0; s < n; ++s)
        for (std::int64_t i = 0; i < 6; ++i)
          xs.back().set(xs.back().at(s, 0, i), 1e-4 * double(i % 2));
    }
  }

  /// @param weight, bias those of the copies.
  void expect(const std::vector<double>& weight,
              const std::vector<double>& bias) {
    truth = {options_.eps, options_.mode, weight, bias};
    truth.forward(xs);
    truth.backward(xs, dys);
    ys = dxs = xs;
    reference::for_each(xs, [&](auto c, auto r, auto i) {
      ys[r].set(i, truth.y(c, xs[r].get(i)));
      dxs[r].set(i, truth.dx(c, xs[r].get(i), dys[r].get(i)));
    });
  }

  /// Gradient of the weight of copy `r`.
  [[nodiscard]] std::vector<double> weight_gradient(std::size_t r) const {
    std::vector<double> result(truth.weight.size());
    reference::for_each({xs[r]}, [&](auto c, auto, auto i) {
      result[c] +=
          dys[r].get(i) * (xs[r].get(i) - truth.mean[c]) * truth.inv_std[c];
    });
    return result;
  }

  std::vector<tensor> xs, dys, ys, dxs;
  reference truth;

private:
  batch_norm_options options_;
};

inline const std::vector<batch_norm_options> all_options{
    {.name = "bn", .channels = 3, .type = dtype::float64},
    {.name = "bn",
     .channels = 3,
     .type = dtype::float32,
     .eps = 1e-3,
     .mode = eps_mode::clamp},
    {.name = "bn",
     .channels = 3,
     .type = dtype::float64,
     .eps = 1e-3,
     .mode = eps_mode::clamp,
     .momentum = std::nullopt}};

/// The answer to a request.
struct stage_answer {
  caf::error reason;
  shared_tensor value;
  std::uint64_t pass_id = 0;
};

template <class Pending>
stage_answer await_forward(Pending pending) {
  stage_answer result;
  std::move(pending).receive(
      [&](const shared_tensor& y, std::uint64_t pass_id) {
        result.value = y;
        result.pass_id = pass_id;
      },
      [&](caf::error& reason) { result.reason = std::move(reason); });
  return result;
}

template <class Pending>
stage_answer await_backward(Pending pending) {
  stage_answer result;
  std::move(pending).receive(
      [&](const shared_tensor& dx) { result.value = dx; },
      [&](caf::error& reason) { result.reason = std::move(reason); });
  return result;
}

using stages = std::vector<std::unique_ptr<batch_norm_stage>>;

/// `content` in host memory, with gaps between its samples.
inline shared_tensor with_gaps(const tensor& content) {
  auto wide = content.layout;
  wide.sample_stride += 5;
  auto width = size_of(wide.type);
  auto samples = std::size_t(wide.shape.samples);
  auto memory = std::make_shared<std::vector<std::byte>>(
      (samples * std::size_t(wide.sample_stride) + 1) * width, std::byte{0x7f});
  auto sample = samples == 0 ? 0 : content.bytes.size() / samples;
  for (std::size_t n = 0; n < samples; ++n)
    copy_bytes(memory->data() + n * std::size_t(wide.sample_stride) * width,
               content.bytes.data() + n * sample, sample);
  return {const_tensor_view{memory->data(), wide}, memory};
}

inline tensor on_host(const shared_tensor& x) {
  REQUIRE(x.view().where() == device{});
  return placed_tensor::fetch({}, x.view());
}

} // namespace syncnorm::test
