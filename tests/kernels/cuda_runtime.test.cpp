// What the CUDA backend says without a GPU.

#include "kernels/cuda/runtime.hpp"
#include "syncnorm/batch_norm.hpp"
#include "syncnorm/device_array.hpp"
#include "syncnorm/error.hpp"

#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <vector>

using namespace syncnorm;

namespace {

constexpr device nowhere{device_type::cuda, 9999};

template <class F>
void check_throws(errc code, const std::string& text, const F& f) {
  try {
    f();
    FAIL("nothing was thrown");
  } catch (const error& e) {
    CHECK(e.code() == code);
    CHECK_MESSAGE(std::string{e.what()}.find(text) != std::string::npos,
                  e.what());
  }
}

} // namespace

TEST_CASE("a CUDA failure names operation, call, device and error") {
  check_throws(errc::device_failure,
               "normalize: elementwise_kernel on cuda:1: expected success, got "
               "cudaErrorLaunchFailure (unspecified launch failure)",
               [] {
                 cuda::check(cudaErrorLaunchFailure, "normalize",
                             "elementwise_kernel", {device_type::cuda, 1});
               });
  CHECK_NOTHROW(cuda::check(cudaSuccess, "normalize", "anything", nowhere));
}

TEST_CASE("every operation refuses a device that is not there") {
  tensor_layout layout{
      dtype::float32, {1, 2, 8}, memory_format::channels_first, 16, nowhere};
  alignas(256) float memory[16] = {};
  alignas(256) static std::byte space[1 << 16];
  const_tensor_view x{memory, layout};
  tensor_view y{memory, layout};
  execution run{nowhere, nullptr, nullptr};
  workspace scratch{space, sizeof(space)};
  float sums[4] = {};
  const float given[2] = {};
  channel_parameters parameters{given, given, nullptr, nullptr};
  moments_view out{8, sums, sums + 2, 2, dtype::float32, nowhere};
  const_moments_view total{8, sums, sums + 2, 2, dtype::float32, nowhere};
  auto refuses = [](const std::string& operation, const auto& call) {
    check_throws(errc::device_unavailable, operation + ": run.where: ", call);
  };
  refuses("batch_moments", [&] { batch_moments(run, x, out, scratch); });
  refuses("merge_moments", [&] {
    std::vector<const_moments_view> parts{total};
    merge_moments(run, parts, out);
  });
  refuses("finalize_moments",
          [&] { finalize_moments(run, total, {}, sums, sums + 2, {}); });
  refuses("normalize", [&] { normalize(run, x, parameters, y); });
  refuses("normalize", [&] {
    normalize_eval(run, x, {sums, sums}, 1e-5, eps_mode::plus, parameters, y);
  });
  refuses("backward_reduce", [&] {
    backward_reduce(run, x, x, parameters, nullptr, {sums, sums + 2}, scratch);
  });
  refuses("backward_input", [&] {
    backward_input(run, x, x, parameters, {sums, sums, 8}, nullptr, y);
  });
  refuses("add_arrays", [&] {
    std::vector<const void*> parts{sums};
    add_arrays(run, parts, 2, dtype::float32, sums + 2);
  });
  refuses("round_array", [&] {
    const double wide[2] = {};
    round_array(run, wide, 2, sums);
  });
  refuses("clear_clamped",
          [&] { clear_clamped(run, sums, 1e-5, 2, dtype::float32, sums + 2); });
  refuses("backward_input_eval", [&] {
    backward_input_eval(run, x, {sums, sums}, 1e-5, eps_mode::plus, parameters,
                        nullptr, y);
  });
}

TEST_CASE("streams, events and memory are refused on a device that is not "
          "there") {
  auto& runtime = cuda_runtime();
  auto refuses = [](const auto& call) {
    check_throws(errc::device_unavailable, "cuda:9999", call);
  };
  refuses([&] { runtime.require(nowhere); });
  refuses([&] { std::ignore = device_stream::make(runtime, nowhere); });
  refuses(
      [&] { std::ignore = device_stream::borrow(runtime, nowhere, nullptr); });
  refuses([&] { std::ignore = runtime.make_event(nowhere); });
  refuses([&] { std::ignore = runtime.allocate({nowhere}, 16); });
  refuses([&] { runtime.copy({nowhere}, nullptr, nowhere, nullptr, {}, 16); });
}
