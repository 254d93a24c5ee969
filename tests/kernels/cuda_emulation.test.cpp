// The CUDA kernels, run thread by thread on the host.

#include "tests/kernels/cuda_emulation.hpp"

static syncnorm::testing::backend& backend_under_test() {
  static syncnorm::testing::emulated_backend ops;
  return ops;
}

#include "tests/kernels/cuda_suite.hpp"

TEST_CASE("more parts than two launches take are refused, with nothing "
          "written") {
  std::vector<double> one{1}, out{7}, second{8};
  std::vector<const_moments_view> parts(
      2049, {1, one.data(), one.data(), 1, dtype::float64, {}});
  moments_view total{0, out.data(), second.data(), 1, dtype::float64, {}};
  std::vector<const void*> arrays(2049, one.data());
  auto& ops = backend_under_test();
  auto check = [](const std::string& call, const std::string& verb, auto f) {
    try {
      f();
      FAIL("nothing was thrown");
    } catch (const error& e) {
      CHECK(e.code() == errc::invalid_argument);
      CHECK(e.what()
            == call + ": parts: expected at most 2048 on a CUDA device (" + verb
                   + " aligned groups of a power of two first), got 2049");
    }
  };
  check("merge_moments", "merge", [&] { ops.merge_moments(parts, total); });
  check("add_arrays", "add",
        [&] { ops.add_arrays(arrays, 1, dtype::float64, out.data()); });
  CHECK(out[0] == 7);
  CHECK(second[0] == 8);
}
