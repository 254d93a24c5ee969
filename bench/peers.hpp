#pragma once

#include "syncnorm/tensor_view.hpp"

#include <memory>
#include <string>

// Batch normalizations of other libraries, behind one interface. Each runs on
// one thread, on the memory that it is given; libtorch allocates its outputs,
// since its operators accept none.

namespace syncnorm::bench {

/// The memory of one layer: float32 parameters, tensors of one layout.
struct layer_memory {
  tensor_layout layout;
  std::int64_t height = 1;
  std::int64_t width = 1;
  void* x = nullptr;
  void* y = nullptr;
  void* dy = nullptr;
  void* dx = nullptr;
  float* weight = nullptr;
  float* bias = nullptr;
  double eps = 1e-5;
};

/// A peer's layer. `output` and `input_gradient` are the results of the last
/// forward and backward pass, in the layout of the memory.
class peer {
public:
  virtual ~peer() = default;

  virtual void forward() = 0;
  virtual void backward() = 0;
  [[nodiscard]] virtual const void* output() const = 0;
  [[nodiscard]] virtual const void* input_gradient() const = 0;
};

/// libtorch's `native_batch_norm` and its backward operator.
[[nodiscard]] std::unique_ptr<peer> make_libtorch(const layer_memory& memory);
[[nodiscard]] std::string libtorch_version();

/// oneDNN's batch normalization primitives, scale and shift, made beforehand.
[[nodiscard]] std::unique_ptr<peer> make_onednn(const layer_memory& memory);
[[nodiscard]] std::string onednn_version();

} // namespace syncnorm::bench
