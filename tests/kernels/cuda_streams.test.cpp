// How the CUDA operations behave as guests on a stream.

#include "syncnorm/error.hpp"
#include "tests/kernels/cuda_agreement.hpp"
#include "tests/kernels/cuda_device.hpp"

#include <optional>

using namespace syncnorm;
using namespace syncnorm::testing;

namespace {

std::vector<placement> layouts(device where) {
  std::vector<placement> result;
  for (auto shape : {tensor_shape{8, 3, 20000}, {16, 64, 784}, {3, 1021, 5}})
    for (auto type : {dtype::float32, dtype::float16})
      for (auto format :
           {memory_format::channels_first, memory_format::channels_last})
        result.push_back(
            {{type, shape, format, shape.channels * shape.spatial, where}, 0});
  return result;
}

/// A small layer with all of its memory allocated, so that a call enqueues
/// kernels and nothing else.
class ready_call {
public:
  explicit ready_call(cuda_backend& gpu)
      : gpu_{gpu},
        layout_{dtype::float32,
                {8, 3, 20000},
                memory_format::channels_first,
                60000,
                gpu.where()},
        host_{layout_, 0} {
    host_.fill_noise(1, 3, 1);
    x_.emplace(gpu, host_);
    auto bytes = std::max(batch_moments_workspace(layout_),
                          backward_reduce_workspace(layout_));
    scratch_bytes_.resize(bytes);
    scratch_.emplace(gpu, scratch_bytes_);
  }

  void enqueue() {
    const auto& run = gpu_.run();
    workspace scratch{scratch_->data(), scratch_bytes_.size()};
    moments_view moments{0, mean_.data(),   inv_std_.data(),
                         3, dtype::float32, gpu_.where()};
    batch_moments(run, x_->view(), moments, scratch);
    std::vector<const_moments_view> parts{moments, moments};
    moments_view merged{0, sum_.data(),    sum_xmu_.data(),
                        3, dtype::float32, gpu_.where()};
    merge_moments(run, parts, merged);
    finalize_moments(run, moments, {}, mean_.data(), inv_std_.data(), {});
    channel_parameters parameters{mean_.data(), inv_std_.data(), nullptr,
                                  nullptr};
    normalize(run, x_->view(), parameters, y_.view());
    backward_reduce(run, y_.view(), x_->view(), parameters, nullptr,
                    {sum_.data(), sum_xmu_.data()}, scratch);
    backward_input(run, y_.view(), x_->view(), parameters,
                   {sum_.data(), sum_xmu_.data(), 160000}, nullptr, dx_.view());
  }

  [[nodiscard]] std::vector<std::byte> result() {
    return dx_.read().bytes();
  }

private:
  cuda_backend& gpu_;
  tensor_layout layout_;
  host_tensor host_;
  std::optional<placed_tensor> x_;
  placed_tensor y_{gpu_, host_tensor{layout_, 0}};
  placed_tensor dx_{gpu_, host_tensor{layout_, 0}};
  std::vector<double> nothing_ = {0, 0, 0};
  placed_array mean_{gpu_, dtype::float32, nothing_};
  placed_array inv_std_{gpu_, dtype::float32, nothing_};
  placed_array sum_{gpu_, dtype::float32, nothing_};
  placed_array sum_xmu_{gpu_, dtype::float32, nothing_};
  std::vector<std::byte> scratch_bytes_;
  std::optional<buffer> scratch_;
};

} // namespace

TEST_CASE("the same call gives the same bits") {
  cuda_backend gpu;
  for (const auto& where : layouts(gpu.where())) {
    layer_data data{where};
    layer one{gpu, where, data.x, data.residual, data.dy};
    layer two{gpu, where, data.x, data.residual, data.dy};
    for (auto* run : {&one, &two}) {
      run->forward();
      run->backward(run->mask());
    }
    CHECK(one.mask() == two.mask());
    CHECK(one.arrays() == two.arrays());
    auto first = one.tensors();
    auto second = two.tensors();
    for (std::size_t i = 0; i < first.size(); ++i)
      CHECK(first[i].bytes() == second[i].bytes());
  }
}

TEST_CASE("a graph can capture the operations: they neither allocate nor wait "
          "for the device") {
  cuda_backend gpu;
  ready_call call{gpu};
  call.enqueue();
  auto expected = call.result();
  REQUIRE(cudaStreamBeginCapture(gpu.stream(), cudaStreamCaptureModeGlobal)
          == cudaSuccess);
  call.enqueue();
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(gpu.stream(), &graph) == cudaSuccess);
  cudaGraphExec_t instance = nullptr;
  REQUIRE(cudaGraphInstantiate(&instance, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(instance, gpu.stream()) == cudaSuccess);
  CHECK(call.result() == expected);
  (void) cudaGraphExecDestroy(instance);
  (void) cudaGraphDestroy(graph);
}

TEST_CASE(
    "calls of which each needs what the one before has made give the same "
    "bits as with a wait between them") {
  // Small, so that a kernel could come before the one before it has ended.
  cuda_backend gpu;
  for (const auto& where : layouts(gpu.where())) {
    auto channels = where.layout.shape.channels;
    host_tensor start{where.layout, where.offset};
    start.fill_noise(1, 3, 1);
    std::vector<double> nothing(std::size_t(channels), 0.0);
    auto chain = [&](bool waits) {
      placed_tensor a{gpu, start};
      placed_tensor b{gpu, start};
      placed_array mean{gpu, dtype::float32, nothing};
      placed_array m2{gpu, dtype::float32, nothing};
      auto size = batch_moments_workspace(where.layout);
      std::vector<std::byte> blank(size);
      buffer scratch{gpu, blank};
      for (int i = 0; i < 50; ++i) {
        const auto& from = i % 2 == 0 ? a : b;
        const auto& to = i % 2 == 0 ? b : a;
        moments_view moments{0,        mean.data(),    m2.data(),
                             channels, dtype::float32, gpu.where()};
        batch_moments(gpu.run(), from.view(), moments, {scratch.data(), size});
        finalize_moments(gpu.run(), moments, {}, mean.data(), m2.data(), {});
        normalize(gpu.run(), from.view(),
                  {mean.data(), m2.data(), nullptr, nullptr}, to.view());
        if (waits)
          REQUIRE(cudaStreamSynchronize(gpu.stream()) == cudaSuccess);
      }
      return a.read().bytes();
    };
    CHECK(chain(false) == chain(true));
  }
}

TEST_CASE("backward_reduce of an empty tensor gives zeros") {
  cuda_backend gpu;
  placed_array array{gpu, dtype::float32, {1, 2, 3}};
  placed_array sum{gpu, dtype::float32, {1, 2, 3}};
  placed_array sum_xmu{gpu, dtype::float32, {1, 2, 3}};
  placed_array weight_grad{gpu, dtype::float32, {1, 2, 3}};
  tensor_layout layout{
      dtype::float32, {0, 3, 5}, memory_format::channels_last, 15, gpu.where()};
  const_tensor_view empty{nullptr, layout};
  gpu.backward_reduce(
      empty, empty, {array.data(), array.data(), nullptr, nullptr}, nullptr,
      {sum.data(), sum_xmu.data(), weight_grad.data(), nullptr});
  std::vector<double> zeros{0, 0, 0};
  CHECK(sum.read() == zeros);
  CHECK(sum_xmu.read() == zeros);
  CHECK(weight_grad.read() == zeros);
}

TEST_CASE("more parts than two launches take are refused") {
  cuda_backend gpu;
  placed_array mean{gpu, dtype::float32, {1}};
  placed_array m2{gpu, dtype::float32, {1}};
  placed_array mean_out{gpu, dtype::float32, {7}};
  placed_array m2_out{gpu, dtype::float32, {7}};
  std::vector<const_moments_view> parts(
      2049, {1, mean.data(), m2.data(), 1, dtype::float32, gpu.where()});
  moments_view out{0, mean_out.data(), m2_out.data(),
                   1, dtype::float32,  gpu.where()};
  CHECK_THROWS_AS(gpu.merge_moments(parts, out), error);
  CHECK(mean_out.read() == std::vector<double>{7});
}

TEST_CASE("the current device is what it was before the call") {
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  cuda_backend gpu;
  ready_call call{gpu};
  for (int index = 0; index < count; ++index) {
    REQUIRE(cudaSetDevice(index) == cudaSuccess);
    call.enqueue();
    int current = -1;
    REQUIRE(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == index);
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("a stream of another device is refused") {
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  if (count < 2) {
    MESSAGE("needs two devices, not checked");
    return;
  }
  cudaStream_t other = nullptr;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  REQUIRE(cudaStreamCreate(&other) == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  float unused[4] = {};
  const_moments_view total{1, unused,         unused + 2,
                           2, dtype::float32, {device_type::cuda, 0}};
  try {
    finalize_moments({{device_type::cuda, 0}, other, nullptr}, total, {},
                     unused, unused + 2, {});
    FAIL_CHECK("nothing was thrown");
  } catch (const error& e) {
    // Older toolkits do not tell whose a stream is: there, the launch fails.
    CHECK(e.code()
          == (CUDART_VERSION >= 12080 ? errc::device_mismatch
                                      : errc::device_failure));
  }
  CHECK(cudaStreamDestroy(other) == cudaSuccess);
}
