// The formulas of one element, shared by all kernels. `V` is a scalar (CUDA,
// tests) or a vector of Highway's. As Highway compiles a file once for each
// instruction set, this header is included once more in each of them: the
// includer names the namespace and, before it, how a function is declared:
//
//   SYNCNORM_ELEMENTS_NAMESPACE  for example syncnorm::elements
//   SYNCNORM_ELEMENTS_FUNCTION   for example __host__ __device__ inline
//
// V needs +, -, * and a `multiply_add(V a, V b, V c)`, a * b + c, that is
// declared in that namespace before.

namespace SYNCNORM_ELEMENTS_NAMESPACE {

/// (x - mean) * scale + bias. The difference comes first: x * scale +
/// (bias - mean * scale) would lose the digits that mean and x share.
template <class V>
SYNCNORM_ELEMENTS_FUNCTION V normalized(V x, V mean, V scale, V bias) {
  return multiply_add(x - mean, scale, bias);
}

/// (dy - mean_dy - (x - mean) * projection) * scale
template <class V>
SYNCNORM_ELEMENTS_FUNCTION V input_gradient(V dy, V x, V mean, V mean_dy,
                                            V projection, V scale) {
  return (dy - multiply_add(x - mean, projection, mean_dy)) * scale;
}

/// Adds x - pivot and its square to the sums. The difference is taken with the
/// opposite sign, which is as exact: a vector instruction can subtract what is
/// in memory, but not subtract from it.
template <class V>
SYNCNORM_ELEMENTS_FUNCTION void add_shifted(V x, V pivot, V& sum,
                                            V& sum_of_squares) {
  auto shifted = pivot - x;
  sum = sum - shifted;
  sum_of_squares = multiply_add(shifted, shifted, sum_of_squares);
}

/// Adds dy and dy * (x - mean) to the sums.
template <class V>
SYNCNORM_ELEMENTS_FUNCTION void add_gradient(V dy, V x, V mean, V& sum_dy,
                                             V& sum_dy_xmu) {
  sum_dy = sum_dy + dy;
  sum_dy_xmu = multiply_add(dy, x - mean, sum_dy_xmu);
}

} // namespace SYNCNORM_ELEMENTS_NAMESPACE
