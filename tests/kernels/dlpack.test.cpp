#include "syncnorm/dlpack.hpp"

#include "syncnorm/error.hpp"

#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

using namespace syncnorm;

namespace {

using sizes = std::vector<std::int64_t>;

/// A tensor as another library would hand it over.
struct foreign {
  foreign(sizes shape_values, sizes stride_values)
      : shape{std::move(shape_values)},
        strides{std::move(stride_values)} {
    auto& inner = tensor.dl_tensor;
    inner.data = memory;
    inner.device = {kDLCPU, 0};
    inner.ndim = int(shape.size());
    inner.dtype = {kDLFloat, 32, 1};
    inner.shape = shape.data();
    inner.strides = strides.empty() ? nullptr : strides.data();
    tensor.manager_ctx = &deleted;
    tensor.deleter = [](DLManagedTensor* self) {
      ++*static_cast<int*>(self->manager_ctx);
    };
  }

  [[nodiscard]] tensor_view view() const {
    return view_of(tensor);
  }

  alignas(64) float memory[256] = {};
  sizes shape;
  sizes strides;
  int deleted = 0;
  DLManagedTensor tensor{};
};

errc code_of(const foreign& one, const char* named) {
  try {
    (void) one.view();
  } catch (const error& e) {
    INFO(std::string{e.what()});
    CHECK(std::string{e.what()}.find(named) != std::string::npos);
    CHECK(std::string{e.what()}.rfind("view_of: tensor", 0) == 0);
    return e.code();
  }
  return errc::none;
}

} // namespace

TEST_CASE("strides tell the format, and gaps between samples") {
  struct {
    sizes shape;
    sizes strides;
    memory_format format;
    std::int64_t sample_stride;
  } const cases[] = {
      {{2, 3, 4, 5}, {}, memory_format::channels_first, 60},
      {{2, 3, 4, 5}, {60, 20, 5, 1}, memory_format::channels_first, 60},
      {{2, 3, 4, 5}, {77, 20, 5, 1}, memory_format::channels_first, 77},
      {{2, 3, 4, 5}, {60, 1, 15, 3}, memory_format::channels_last, 60},
      {{2, 3, 4, 5}, {64, 1, 15, 3}, memory_format::channels_last, 64},
      {{2, 3}, {3, 1}, memory_format::channels_first, 3},
      {{2, 3}, {9, 1}, memory_format::channels_first, 9},
      // A size of 1 may have any stride.
      {{1, 3, 4}, {0, 4, 1}, memory_format::channels_first, 12},
      {{2, 1, 4}, {4, 99, 1}, memory_format::channels_first, 4},
      {{2, 3, 1, 4}, {12, 4, 99, 1}, memory_format::channels_first, 12},
      {{2, 3, 1, 1}, {3, 1, 3, 3}, memory_format::channels_first, 3},
      {{2, 3, 1, 4}, {12, 1, 99, 3}, memory_format::channels_last, 12},
      // Nothing is there, so any strides will do; the format is read if it can.
      {{0, 3, 4}, {1, 2, 1}, memory_format::channels_first, 12},
      {{2, 3, 0}, {7, 7, 7}, memory_format::channels_first, 0},
      {{0, 3, 4, 5}, {60, 20, 5, 1}, memory_format::channels_first, 60},
      {{0, 3, 4, 5}, {60, 1, 15, 3}, memory_format::channels_last, 60},
      {{0, 3, 4, 5}, {0, 1, 15, 3}, memory_format::channels_last, 60},
      {{2, 3, 0, 5}, {15, 1, 15, 3}, memory_format::channels_last, 0},
  };
  for (const auto& one : cases) {
    foreign tensor{one.shape, one.strides};
    auto view = tensor.view();
    CHECK(view.format() == one.format);
    CHECK(view.sample_stride() == one.sample_stride);
    CHECK(view.shape().samples == one.shape[0]);
    CHECK(view.shape().channels == one.shape[1]);
  }
}

TEST_CASE("strides of neither format are refused") {
  for (const auto& strides :
       {sizes{60, 20, 1, 4}, sizes{60, 21, 5, 1}, sizes{59, 20, 5, 1},
        sizes{-60, 20, 5, 1}, sizes{120, 40, 10, 2}, sizes{20, 40, 5, 1},
        sizes{60, 1, 3, 12}, sizes{0, 20, 5, 1}})
    CHECK(code_of({{2, 3, 4, 5}, strides},
                  "samples 60 or more elements apart, for [2, 3, 4, 5]")
          == errc::shape_mismatch);
}

TEST_CASE("a tensor without elements keeps its format") {
  for (const tensor_shape& shape :
       {tensor_shape{0, 3, 5}, tensor_shape{2, 3, 0}})
    for (auto format :
         {memory_format::channels_first, memory_format::channels_last}) {
      tensor_layout layout{
          dtype::float32, shape, format, 3 * shape.spatial, {}};
      dlpack_tensor tensor{to_dlpack({nullptr, layout}, nullptr)};
      CHECK(tensor.view().layout() == layout);
    }
}

TEST_CASE("types are taken over where there is one of ours") {
  struct {
    DLDataType from;
    dtype to;
  } const cases[] = {{{kDLFloat, 16, 1}, dtype::float16},
                     {{kDLFloat, 32, 1}, dtype::float32},
                     {{kDLFloat, 64, 1}, dtype::float64},
                     {{kDLBfloat, 16, 1}, dtype::bfloat16}};
  for (const auto& one : cases) {
    foreign tensor{{2, 3}, {}};
    tensor.tensor.dl_tensor.dtype = one.from;
    CHECK(tensor.view().type() == one.to);
  }
  for (DLDataType bad :
       {DLDataType{kDLInt, 32, 1}, DLDataType{kDLFloat, 8, 1},
        DLDataType{kDLFloat, 32, 4}, DLDataType{kDLBfloat, 32, 1},
        DLDataType{kDLBfloat, 16, 2}, DLDataType{kDLComplex, 64, 1}}) {
    foreign tensor{{2, 3}, {}};
    tensor.tensor.dl_tensor.dtype = bad;
    CHECK(code_of(tensor, "dtype") == errc::dtype_mismatch);
  }
}

TEST_CASE("devices are taken over where there is one of ours") {
  struct {
    DLDevice from;
    device to;
  } const cases[] = {{{kDLCPU, 0}, {}},
                     {{kDLCUDAHost, 0}, {}},
                     {{kDLCUDA, 3}, {device_type::cuda, 3}},
                     {{kDLCUDAManaged, 1}, {device_type::cuda, 1}}};
  for (const auto& one : cases) {
    foreign tensor{{2, 3}, {}};
    tensor.tensor.dl_tensor.device = one.from;
    CHECK(tensor.view().where() == one.to);
  }
  foreign tensor{{2, 3}, {}};
  tensor.tensor.dl_tensor.device = {kDLROCM, 0};
  CHECK(code_of(tensor, "device") == errc::device_mismatch);
  tensor.tensor.dl_tensor.device = {kDLCUDA, -1};
  CHECK(code_of(tensor, "device") == errc::device_mismatch);
}

TEST_CASE("memory and sizes are checked") {
  CHECK(code_of({{6}, {}}, "dimensions") == errc::shape_mismatch);
  CHECK(code_of({{2, 0}, {}}, "sizes") == errc::invalid_argument);
  CHECK(code_of({{-2, 3}, {}}, "sizes") == errc::invalid_argument);
  foreign null{{2, 3}, {}};
  null.tensor.dl_tensor.data = nullptr;
  CHECK(code_of(null, "data") == errc::invalid_argument);
  null.tensor.dl_tensor.byte_offset = 8;
  CHECK(code_of(null, "data") == errc::invalid_argument);
  foreign shapeless{{2, 3}, {}};
  shapeless.tensor.dl_tensor.shape = nullptr;
  CHECK(code_of(shapeless, "tensor.shape: expected a pointer, got null")
        == errc::invalid_argument);
  CHECK(code_of({{2, 3, 4}, {std::int64_t{1} << 62, 4, 1}}, "strides")
        == errc::invalid_argument);
  foreign odd{{2, 3}, {}};
  odd.tensor.dl_tensor.byte_offset = 2;
  CHECK(code_of(odd, "data") == errc::invalid_argument);
  foreign offset{{2, 3}, {}};
  offset.tensor.dl_tensor.byte_offset = 12;
  CHECK(offset.view().data() == offset.memory + 3);
}

TEST_CASE("a tensor that was taken over is deleted once, by the last owner") {
  foreign one{{2, 3}, {}};
  {
    dlpack_tensor owner{&one.tensor};
    CHECK(owner.view().data() == one.memory);
    auto moved = std::move(owner);
    CHECK(one.deleted == 0);
    CHECK(moved.view().data() == one.memory);
  }
  CHECK(one.deleted == 1);
}

TEST_CASE("a tensor that was moved elsewhere leaves no view behind") {
  foreign one{{2, 3}, {}};
  foreign other{{2, 3}, {}};
  dlpack_tensor a{&one.tensor};
  dlpack_tensor b{std::move(a)};
  // NOLINTBEGIN(bugprone-use-after-move)
  CHECK(a.view().data() == nullptr);
  CHECK(a.view().empty());
  dlpack_tensor c{&other.tensor};
  c = std::move(b);
  CHECK(other.deleted == 1);
  CHECK(b.view().data() == nullptr);
  // NOLINTEND(bugprone-use-after-move)
  CHECK(c.view().data() == one.memory);
  CHECK(one.deleted == 0);
}

TEST_CASE("a tensor that was refused still belongs to the caller") {
  foreign bad{{2, 3, 4}, {12, 5, 1}};
  CHECK_THROWS_AS(dlpack_tensor{&bad.tensor}, error);
  CHECK(bad.deleted == 0);
  CHECK_THROWS_AS(dlpack_tensor{nullptr}, error);
}

TEST_CASE("a tensor without a deleter may be taken over, too") {
  foreign one{{2, 3}, {}};
  one.tensor.deleter = nullptr;
  CHECK_NOTHROW(dlpack_tensor{&one.tensor});
}

TEST_CASE("a view that was handed out comes back as it was") {
  float memory[256] = {};
  for (auto type :
       {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16})
    for (auto format :
         {memory_format::channels_first, memory_format::channels_last}) {
      // Nothing is read: what is told of a device needs none.
      device where{format == memory_format::channels_last ? device_type::cuda
                                                          : device_type::cpu,
                   format == memory_format::channels_last ? 2 : 0};
      tensor_layout layout{type, {2, 3, 20}, format, 64, where};
      tensor_view view{memory, layout};
      auto owner = std::make_shared<int>(1);
      std::weak_ptr<int> watch = owner;
      {
        dlpack_tensor back{
            to_dlpack(view, std::move(owner), sizes{2, 3, 4, 5})};
        CHECK(back.view().layout() == layout);
        CHECK(back.view().data() == memory);
        CHECK_FALSE(watch.expired());
      }
      CHECK(watch.expired());
    }
}

TEST_CASE("a view that is handed out has the sizes that were asked for") {
  float memory[256] = {};
  tensor_view view{memory, {dtype::float32, {2, 3, 20}, {}, 60, {}}};
  dlpack_tensor handed_out{to_dlpack(view, nullptr)};
  auto check = [&](const sizes& asked, const sizes& shape,
                   const sizes& strides) {
    auto* tensor = to_dlpack(view, nullptr, asked);
    const auto& inner = tensor->dl_tensor;
    CHECK(sizes(inner.shape, inner.shape + inner.ndim) == shape);
    CHECK(sizes(inner.strides, inner.strides + inner.ndim) == strides);
    tensor->deleter(tensor);
  };
  check({}, {2, 3, 20}, {60, 20, 1});
  check({2, 3, 4, 5}, {2, 3, 4, 5}, {60, 20, 5, 1});
  view = {memory, {dtype::float32, {2, 3, 1}, {}, 3, {}}};
  check({}, {2, 3}, {3, 1});
  view = {memory, {dtype::float32, {2, 3, 0}, {}, 0, {}}};
  check({}, {2, 3, 0}, {0, 1, 1});
}

TEST_CASE("a view of any CPU device is handed out as one of CPU 0") {
  float memory[6] = {};
  tensor_view view{memory,
                   {dtype::float32, {2, 3, 1}, {}, 3, {device_type::cpu, 3}}};
  auto* tensor = to_dlpack(view, nullptr);
  CHECK(tensor->dl_tensor.device.device_type == kDLCPU);
  CHECK(tensor->dl_tensor.device.device_id == 0);
  tensor->deleter(tensor);
}

TEST_CASE("sizes that are not those of the view are refused by one error") {
  float memory[256] = {};
  constexpr auto huge = std::int64_t{1} << 62;
  tensor_view view{memory, {dtype::float32, {2, 3, 20}, {}, 60, {}}};
  for (const auto& bad :
       {sizes{2, 3, 4, 4}, sizes{3, 2, 20}, sizes{3, 3, 20}, sizes{2, 6, 20},
        sizes{120}, sizes{2, 3}, sizes{2, 3, -20}, sizes{2, 3, -4, -5},
        sizes{2, 3, 20, 0}, sizes{2, 3, huge, 20}})
    try {
      (void) to_dlpack(view, nullptr, bad);
      FAIL_CHECK("no error");
    } catch (const error& e) {
      CHECK(e.code() == errc::shape_mismatch);
      CHECK(std::string{e.what()}.rfind("to_dlpack: sizes: ", 0) == 0);
    }
  tensor_view empty{memory, {dtype::float32, {2, 3, 0}, {}, 0, {}}};
  for (const auto& [good, strides] :
       {std::pair{sizes{2, 3, 7, 0}, sizes{0, 7, 1, 1}},
        std::pair{sizes{2, 3, 0, huge, huge}, sizes{0, 0, 0, 0, 0}}}) {
    auto* handed_out = to_dlpack(empty, nullptr, good);
    CHECK(handed_out->dl_tensor.ndim == std::ssize(good));
    CHECK(std::ranges::equal(
        std::span{handed_out->dl_tensor.strides, good.size()}, strides));
    CHECK(view_of(*handed_out).layout() == empty.layout());
    handed_out->deleter(handed_out);
  }
  CHECK_THROWS_AS((void) to_dlpack(empty, nullptr, sizes{2, 3, 7}), error);
}
