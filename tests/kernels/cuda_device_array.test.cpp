// Streams, events and arrays on a GPU.

#include "syncnorm/device_array.hpp"
#include "syncnorm/error.hpp"
#include "tests/kernels/doubled.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

using namespace syncnorm;
using syncnorm::testing::doubled;

namespace {

constexpr std::size_t elements = 1 << 20;

device_array upload(const device_stream& stream, double value,
                    const pinned_memory& host) {
  auto* first = static_cast<double*>(host.data());
  std::fill(first, first + elements, value);
  device_array result{stream, dtype::float64, elements};
  stream.runtime().copy(stream.run(), result.data(), stream.where(), first, {},
                        result.bytes());
  result.publish();
  return result;
}

/// Whether all elements are `value`.
bool holds(const device_array& x, double value) {
  pinned_memory host{x.stream(), x.bytes()};
  x.copy_to(host);
  auto end = x.stream().record();
  end.synchronize();
  CHECK(end.has_passed());
  const auto* first = static_cast<const double*>(host.data());
  return std::all_of(first, first + x.size(),
                     [value](double y) { return y == value; });
}

} // namespace

TEST_CASE("an array goes from stream to stream behind its events, and its "
          "memory is used again") {
  auto& gpu = cuda_runtime();
  auto where = devices().at(1);
  auto a = device_stream::make(gpu, where);
  auto b = device_stream::make(gpu, where);
  pinned_memory host{a, elements * sizeof(double)};
  for (int i = 1; i <= 50; ++i) {
    auto x = doubled(b, upload(a, i, host));
    CHECK(holds(doubled(a, x), 4.0 * i));
  }
}

TEST_CASE("an array is copied to every other device") {
  auto& gpu = cuda_runtime();
  auto all = devices();
  auto a = device_stream::make(gpu, all.at(1));
  pinned_memory host{a, elements * sizeof(double)};
  auto x = upload(a, 3, host);
  for (std::size_t i = 2; i < all.size(); ++i) {
    auto b = device_stream::make(gpu, all[i]);
    CHECK(holds(doubled(b, x.on_device_of(b)), 6));
  }
}

TEST_CASE("the default stream can be borrowed") {
  auto a =
      device_stream::borrow(cuda_runtime(), {device_type::cuda, 0}, nullptr);
  pinned_memory host{a, elements * sizeof(double)};
  CHECK(holds(doubled(a, upload(a, 5, host)), 10));
}

TEST_CASE("a stream that is another one in each thread is refused for arrays") {
  auto each_its_own = device_stream::borrow(
      cuda_runtime(), {device_type::cuda, 0}, cudaStreamPerThread);
  try {
    device_array x{each_its_own, dtype::float32, 8};
    FAIL("it was taken");
  } catch (const error& e) {
    CHECK(e.code() == errc::invalid_argument);
    CHECK(std::string{e.what()}.find("got cudaStreamPerThread")
          != std::string::npos);
  }
}
