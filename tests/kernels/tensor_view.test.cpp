#include "syncnorm/tensor_view.hpp"

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/error.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

using namespace syncnorm;

namespace {

using sizes = std::vector<std::int64_t>;

constexpr auto max = std::numeric_limits<std::int64_t>::max();

errc code_of(const sizes& s) {
  try {
    (void) make_layout(dtype::float32, s);
  } catch (const error& e) {
    return e.code();
  }
  return errc::none;
}

errc code_of(const void* data, const tensor_layout& layout) {
  try {
    (void) const_tensor_view{data, layout};
  } catch (const error& e) {
    return e.code();
  }
  return errc::none;
}

} // namespace

TEST_CASE("a layout is made of sizes, spatial ones multiplied") {
  auto layout =
      make_layout(dtype::float16, sizes{8, 64, 5, 7},
                  memory_format::channels_last, {device_type::cuda, 2});
  CHECK(layout.shape == tensor_shape{8, 64, 35});
  CHECK(layout.sample_stride == 64 * 35);
  CHECK(layout.type == dtype::float16);
  CHECK(layout.format == memory_format::channels_last);
  CHECK(layout.where == device{device_type::cuda, 2});
  CHECK(make_layout(dtype::float32, sizes{8, 64}).shape
        == tensor_shape{8, 64, 1});
  CHECK(make_layout(dtype::float32, sizes{0, 64, 0}).shape
        == tensor_shape{0, 64, 0});
}

TEST_CASE("sizes that make no tensor are refused") {
  for (const auto& bad :
       {sizes{}, sizes{3}, sizes{-1, 3}, sizes{1, -3}, sizes{1, 3, -2},
        sizes{1, 0, 3}, sizes{max, 2}, sizes{2, max / 4, 2},
        sizes{1, 1, max / 2, 4}, sizes{max / 8, 3}, sizes{1, 3, -2, -2},
        sizes{1, 1, max / 2 + 1, 4}})
    CHECK(code_of(bad) == errc::invalid_argument);
  CHECK(code_of(sizes{1, 1, max / 4}) == errc::none);
}

TEST_CASE("a view refuses memory and layouts that cannot be") {
  alignas(8) float memory[64] = {};
  tensor_layout good{dtype::float32, {2, 3, 4}, {}, 12, {}};
  CHECK(code_of(memory, good) == errc::none);
  CHECK(code_of(nullptr, good) == errc::invalid_argument);
  CHECK(code_of(reinterpret_cast<char*>(memory) + 2, good)
        == errc::invalid_argument);
  auto change = [&](auto body) {
    auto layout = good;
    body(layout);
    return code_of(memory, layout);
  };
  CHECK(change([](auto& l) { l.shape.samples = -1; })
        == errc::invalid_argument);
  CHECK(change([](auto& l) { l.shape.channels = 0; })
        == errc::invalid_argument);
  CHECK(change([](auto& l) { l.shape.spatial = -1; })
        == errc::invalid_argument);
  CHECK(change([](auto& l) { l.sample_stride = 11; })
        == errc::invalid_argument);
  CHECK(change([](auto& l) { l.sample_stride = max; })
        == errc::invalid_argument);
  CHECK(change([](auto& l) { l.shape.channels = max; })
        == errc::invalid_argument);
  CHECK(change([](auto& l) { l.type = dtype{4}; }) == errc::dtype_mismatch);
  CHECK(change([](auto& l) { l.format = memory_format{2}; })
        == errc::invalid_argument);
}

TEST_CASE("the last sample ends within 2^63 - 1 bytes") {
  alignas(8) float memory[64] = {};
  constexpr auto most = max / 4 - 12;
  tensor_layout layout{dtype::float32, {2, 3, 4}, {}, most, {}};
  CHECK(code_of(memory, layout) == errc::none);
  layout.sample_stride = most + 1;
  CHECK(code_of(memory, layout) == errc::invalid_argument);
  // C * S is 2^64.
  constexpr auto half = std::int64_t{1} << 32;
  layout = {dtype::float32, {1, half, half}, {}, 0, {}};
  CHECK(code_of(memory, layout) == errc::invalid_argument);
}

TEST_CASE("no sample stride is negative, also where there are no elements") {
  alignas(8) float memory[64] = {};
  tensor_layout layout{dtype::float32, {2, 3, 0}, {}, -1, {}};
  CHECK(code_of(memory, layout) == errc::invalid_argument);
}

TEST_CASE("a layout that is refused names the argument that is wrong") {
  auto text_of = [](dtype type, const sizes& s, memory_format format) {
    try {
      (void) make_layout(type, s, format);
    } catch (const error& e) {
      return std::string{e.what()};
    }
    return std::string{"nothing was thrown"};
  };
  CHECK(text_of(dtype{7}, {2, 3}, memory_format::channels_last)
            .starts_with("make_layout: type: expected float32, "));
  CHECK(text_of(dtype::float32, {2, 3}, memory_format{7})
            .starts_with("make_layout: format: expected channels_first or "));
  CHECK(text_of(dtype::float32, {2}, memory_format::channels_first)
            .starts_with("make_layout: sizes: expected [N, C]"));
}

TEST_CASE("no workspace overflows with as many channels as there may be") {
  constexpr auto most = std::int64_t{1} << 48;
  for (std::int64_t spatial : {0, 1, 2})
    for (std::int64_t samples : {0, 1, 5}) {
      INFO(samples, " samples, ", spatial, " spatial elements");
      CHECK(code_of(sizes{samples, most + 1, spatial})
            == errc::invalid_argument);
      auto x = make_layout(dtype::float32, sizes{samples, most, spatial});
      for (auto bytes :
           {batch_moments_workspace(x), backward_reduce_workspace(x),
            batch_norm_forward_workspace(x), batch_norm_backward_workspace(x)})
        CHECK((bytes > std::size_t(most) && bytes < std::size_t(max)));
    }
}

TEST_CASE("memory may be null where there are no elements") {
  auto layout = make_layout(dtype::float32, sizes{0, 3, 4});
  const_tensor_view view{nullptr, layout};
  CHECK(view.empty());
  CHECK(view.size() == 0);
}

TEST_CASE("a mask has a bit for each element, in words of 64") {
  CHECK(relu_mask_bytes(make_layout(dtype::float32, sizes{1, 1, 1})) == 8);
  CHECK(relu_mask_bytes(make_layout(dtype::float32, sizes{2, 4, 8})) == 8);
  CHECK(relu_mask_bytes(make_layout(dtype::float32, sizes{1, 5, 13})) == 16);
  CHECK(relu_mask_bytes(make_layout(dtype::float32, sizes{0, 5, 13})) == 0);
  CHECK_THROWS_AS((void) relu_mask_bytes({}), error);
}

TEST_CASE("types and formats have names") {
  CHECK(to_string(dtype::bfloat16) == "bfloat16");
  CHECK(to_string(memory_format::channels_last) == "channels_last");
  CHECK(size_of(dtype::float64) == 8);
  CHECK(size_of(dtype::float16) == 2);
  CHECK(statistics_type(dtype::float16) == dtype::float32);
  CHECK(statistics_type(dtype::float64) == dtype::float64);
}
