#pragma once

#include <ATen/autocast_mode.h>
#include <torch/version.h>

namespace syncnorm::nn::detail {

/// The autocast settings of a thread that `at::ThreadLocalState` leaves out.
struct autocast_settings {
  /// Those of this thread.
  [[nodiscard]] static autocast_settings current();
  /// Makes them this thread's.
  void apply() const;

  /// Whether casts are remembered.
  bool cached = true;
#if TORCH_VERSION_MAJOR < 2
  /// The types to cast to, which `ThreadLocalState` carries in later versions.
  at::ScalarType cpu = at::kBFloat16;
  at::ScalarType cuda = at::kHalf;
#endif
};

/// While one of these lives, its thread is in one pass under autocast. The
/// casts that a thread remembers are dropped with its last pass, as at the end
/// of Python's `torch.autocast`: the next pass may have other weights.
class autocast_pass {
public:
  explicit autocast_pass(const autocast_settings& caller);
  autocast_pass(const autocast_pass&) = delete;
  autocast_pass& operator=(const autocast_pass&) = delete;
  ~autocast_pass();
};

} // namespace syncnorm::nn::detail
