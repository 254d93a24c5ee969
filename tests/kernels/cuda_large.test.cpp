// Tensors of more than 2^31 elements.

#include "tests/kernels/cuda_device.hpp"

#include <doctest/doctest.h>

using namespace syncnorm;
using namespace syncnorm::testing;

namespace {

/// Device memory of one byte value, for work on any stream.
class big_memory {
public:
  big_memory(std::size_t bytes, int value) {
    require_success(cudaMalloc(&data_, bytes));
    require_success(cudaMemset(data_, value, bytes));
    require_success(cudaDeviceSynchronize());
  }
  ~big_memory() {
    (void) cudaFree(data_);
  }
  big_memory(const big_memory&) = delete;
  big_memory& operator=(const big_memory&) = delete;

  [[nodiscard]] float16* data() const {
    return static_cast<float16*>(data_);
  }
  void set(std::int64_t i, double value) {
    auto element = to_float16(float(value));
    require_success(
        cudaMemcpy(data() + i, &element, 2, cudaMemcpyHostToDevice));
    require_success(cudaDeviceSynchronize());
  }
  [[nodiscard]] double get(std::int64_t i) const {
    float16 element;
    require_success(cudaDeviceSynchronize());
    require_success(
        cudaMemcpy(&element, data() + i, 2, cudaMemcpyDeviceToHost));
    return to_float(element);
  }

private:
  void* data_ = nullptr;
};

} // namespace

TEST_CASE("an element behind the first 2^31 counts as any other") {
  constexpr std::int64_t channels = 3;
  constexpr std::int64_t spatial = (std::int64_t{1} << 30) + 8;
  constexpr auto elements = channels * spatial;
  std::size_t free_bytes = 0;
  std::size_t all_bytes = 0;
  require_success(cudaMemGetInfo(&free_bytes, &all_bytes));
  if (free_bytes < std::size_t(elements) * 2 * 2 + (std::size_t{1} << 30)) {
    MESSAGE("needs 14 GB of device memory, not checked");
    return;
  }
  cuda_backend gpu;
  big_memory x{std::size_t(elements) * 2, 0};
  big_memory y{std::size_t(elements) * 2, 0};
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last}) {
    // The last element of both formats belongs to the last channel.
    x.set(elements - 1, 1024);
    tensor_layout layout{
        dtype::float16, {1, channels, spatial}, format, elements, gpu.where()};
    const_tensor_view view{x.data(), layout};
    placed_array mean{gpu, dtype::float32, {9, 9, 9}};
    placed_array m2{gpu, dtype::float32, {9, 9, 9}};
    moments_view out{0, mean.data(), m2.data(), 3, dtype::float32, gpu.where()};
    gpu.batch_moments(view, out);
    CHECK(out.count == spatial);
    auto found_mean = mean.read();
    auto found_m2 = m2.read();
    CHECK(found_mean[0] == 0);
    CHECK(found_m2[1] == 0);
    CHECK(found_mean[2] == doctest::Approx(1024.0 / double(spatial)));
    CHECK(found_m2[2] == doctest::Approx(1024.0 * 1024.0));

    placed_array shift{gpu, dtype::float32, {0, 0, 0}};
    placed_array scale{gpu, dtype::float32, {1, 1, 2}};
    gpu.normalize(view, {shift.data(), scale.data(), nullptr, nullptr},
                  tensor_view{y.data(), layout}, {});
    CHECK(y.get(elements - 1) == 2048);
    CHECK(y.get(0) == 0);
  }
}
