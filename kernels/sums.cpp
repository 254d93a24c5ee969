#include "kernels/backend.hpp"
#include "kernels/validate.hpp"
#include "syncnorm/batch_norm.hpp"

#include <fmt/format.h>

namespace syncnorm {

namespace {

void check_type(const call_check& check, dtype type) {
  if (type != dtype::float32 && type != dtype::float64)
    check.fail(errc::dtype_mismatch, "type", "float32 or float64",
               to_string(type));
}

} // namespace

void add_arrays(const execution& run, std::span<const void* const> parts,
                std::int64_t elements, dtype type, void* out) {
  call_check check{"add_arrays", run};
  check_type(check, type);
  if (parts.empty())
    check.fail(errc::invalid_argument, "parts", "1 or more", "none");
  if (elements < 1)
    check.fail(errc::invalid_argument, "elements", "1 or more",
               std::to_string(elements));
  check.array("out", out, type);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto name = fmt::format("parts[{}]", i);
    check.optional_array(name, parts[i], type);
    auto first = i == 0 && parts[i] == out;
    if (!first && overlap(parts[i], out, elements, type))
      check.fail(errc::invalid_argument, name, "memory apart from out's",
                 "memory that overlaps it");
  }
  if (on_cpu(run))
    cpu::add_arrays(run, parts, elements, type, out);
  else if constexpr (has_cuda)
    cuda::add_arrays(run, parts, elements, type, out);
}

void round_array(const execution& run, const double* from,
                 std::int64_t elements, float* out) {
  call_check check{"round_array", run};
  if (elements < 1)
    check.fail(errc::invalid_argument, "elements", "1 or more",
               std::to_string(elements));
  check.array("from", from, dtype::float64);
  check.array("out", out, dtype::float32);
  auto size = std::size_t(elements);
  check.apart({{"out", out, size * sizeof(float)}},
              {{"from", from, size * sizeof(double)}});
  if (on_cpu(run))
    cpu::round_array(run, from, elements, out);
  else if constexpr (has_cuda)
    cuda::round_array(run, from, elements, out);
}

void clear_clamped(const execution& run, const void* inv_std, double eps,
                   std::int64_t channels, dtype type, void* sum_dy_xmu) {
  call_check check{"clear_clamped", run};
  check_type(check, type);
  check.epsilon("eps", eps);
  if (channels < 1)
    check.fail(errc::shape_mismatch, "channels", "1 or more",
               std::to_string(channels));
  check.array("inv_std", inv_std, type);
  check.array("sum_dy_xmu", sum_dy_xmu, type);
  check.apart("sum_dy_xmu", sum_dy_xmu, "inv_std", inv_std, channels, type);
  if (on_cpu(run))
    cpu::clear_clamped(run, inv_std, eps, channels, type, sum_dy_xmu);
  else if constexpr (has_cuda)
    cuda::clear_clamped(run, inv_std, eps, channels, type, sum_dy_xmu);
}

} // namespace syncnorm
