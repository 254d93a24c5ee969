#include "actors/nn/layer_check.hpp"

#include "actors/nn/tensor_bridge.hpp"
#include "actors/nn/torch_devices.hpp"
#include "syncnorm/error.hpp"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace syncnorm::nn::detail {

namespace {

std::string shape_text(const at::Tensor& x) {
  return fmt::format("[{}]",
                     fmt::join(x.sizes().begin(), x.sizes().end(), ", "));
}

std::string type_text(at::ScalarType type) {
  auto known = to_dtype(type);
  return known ? to_string(*known) : std::string{c10::toString(type)};
}

/// A tensor's dtype, with its layout if it is not dense.
std::string elements_text(const at::Tensor& x) {
  auto type = type_text(x.scalar_type());
  return x.layout() == at::kStrided ? type : c10::str(x.layout(), " ", type);
}

[[noreturn]] void fail(errc code, const char* kind, const char* argument,
                       const std::string& expected, const std::string& got) {
  throw error{code, fmt::format("{}: {}: expected {}, got {}", kind, argument,
                                expected, got)};
}

void check_shape(const char* kind, const at::Tensor& input,
                 std::size_t dimensions, std::int64_t channels) {
  auto rank = input.dim() - 2;
  auto wanted = static_cast<std::int64_t>(dimensions);
  if (rank != wanted && !(wanted == 1 && rank == 0))
    fail(errc::shape_mismatch, kind, "input",
         wanted == 1 ? "2 or 3 dimensions"
                     : fmt::format("{} dimensions", wanted + 2),
         fmt::format("{} of shape {}", input.dim(), shape_text(input)));
  if (input.size(1) != channels)
    fail(errc::shape_mismatch, kind, "input",
         fmt::format("{} channels", channels),
         fmt::format("{} in shape {}", input.size(1), shape_text(input)));
}

void check_vector(const char* kind, const char* argument, const at::Tensor& x,
                  const at::Tensor& input, std::int64_t channels) {
  if (!x.defined())
    return;
  auto wanted = to_scalar_type(statistics_type(*to_dtype(input.scalar_type())));
  if (x.scalar_type() != wanted)
    fail(errc::dtype_mismatch, kind, argument,
         fmt::format("{} for {} input", type_text(wanted),
                     type_text(input.scalar_type())),
         type_text(x.scalar_type()));
  if (x.dim() != 1 || x.size(0) != channels || !x.is_contiguous())
    fail(errc::shape_mismatch, kind, argument,
         fmt::format("contiguous, of shape [{}]", channels),
         fmt::format("{}, strides [{}]", shape_text(x),
                     fmt::join(x.strides().begin(), x.strides().end(), ", ")));
  if (x.is_neg())
    fail(errc::invalid_argument, kind, argument, "values that lie in memory",
         "a view of their negatives");
  if (x.device() != input.device())
    fail(errc::device_mismatch, kind, argument, input.device().str(),
         x.device().str());
}

/// One of the two alone would be useless, and libtorch updates it all the same.
void check_running(const char* kind, const layer_vectors& vectors) {
  auto mean = vectors.running_mean.defined();
  if (mean != vectors.running_var.defined())
    fail(errc::invalid_argument, kind, mean ? "running_var" : "running_mean",
         mean ? "a tensor beside running_mean" : "a tensor beside running_var",
         "none");
}

/// A tangent would be silently lost.
void check_tangent(const char* kind, const char* argument,
                   const at::Tensor& x) {
  if (x.defined() && x._fw_grad(/*level=*/0).defined())
    fail(errc::invalid_argument, kind, argument,
         "no tangent, because there are no forward-mode derivatives", "one");
}

void check_options(const char* kind,
                   const SynchronizedBatchNormOptions& options) {
  if (options.num_features() < 1)
    fail(errc::invalid_argument, kind, "num_features", "1 or more",
         fmt::format("{}", options.num_features()));
  auto eps = options.eps();
  if (!(eps >= 0) || !std::isfinite(eps))
    fail(errc::invalid_argument, kind, "eps", "0 or more, finite",
         fmt::format("{}", eps));
  auto momentum = options.momentum();
  if (momentum && !(*momentum >= 0 && *momentum <= 1))
    fail(errc::invalid_argument, kind, "momentum", "a number in [0, 1]",
         fmt::format("{}", *momentum));
}

} // namespace

void check_call(const char* kind, const at::Tensor& input,
                std::size_t dimensions,
                const SynchronizedBatchNormOptions& options,
                const layer_vectors& vectors) {
  if (!input.defined())
    fail(errc::invalid_argument, kind, "input", "a tensor", "none");
  if (auto expected = why_unusable(input.device()))
    fail(errc::device_unavailable, kind, "input", "a tensor on " + *expected,
         "one on " + input.device().str());
  if (!to_dtype(input.scalar_type()) || input.layout() != at::kStrided)
    fail(errc::dtype_mismatch, kind, "input",
         "a dense tensor of float32, float64, float16 or bfloat16",
         elements_text(input));
  check_tangent(kind, "input", input);
  check_tangent(kind, "weight", vectors.weight);
  check_tangent(kind, "bias", vectors.bias);
  check_options(kind, options);
  check_shape(kind, input, dimensions, options.num_features());
  auto channels = options.num_features();
  check_vector(kind, "weight", vectors.weight, input, channels);
  check_vector(kind, "bias", vectors.bias, input, channels);
  check_running(kind, vectors);
  check_vector(kind, "running_mean", vectors.running_mean, input, channels);
  check_vector(kind, "running_var", vectors.running_var, input, channels);
}

std::string layer_text(const char* kind, const std::string& path) {
  return path.empty() ? std::string{kind} : kind + (" " + path);
}

} // namespace syncnorm::nn::detail
