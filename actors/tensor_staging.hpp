#pragma once

#include "syncnorm/detail/host_copy.hpp"
#include "syncnorm/device_array.hpp"
#include "syncnorm/shared_tensor.hpp"
#include "syncnorm/tensor_pool.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace syncnorm::detail {

/// The answer to a tensor that may have come in host memory.
struct way_back {
  /// Whether it came in host memory; then the answer goes there, too.
  bool to_host = false;
  /// Where the stream copies the answer, and what that becomes then.
  pinned_memory copy{};
  std::optional<tensor_memory> memory{};
};

/// The pinned memory through which tensors go from host memory to a device and
/// back. It is reused. Nothing here waits for the device, except the destructor
/// of this object.
class tensor_staging {
public:
  /// Returns `x`, which lies in host memory, on the device of `stream`: the
  /// copy is enqueued there, and `x` is no longer needed.
  [[nodiscard]] shared_tensor to_device(const device_stream& stream,
                                        const shared_tensor& x);

  /// Enqueues a copy of `y`, which has no gaps, behind the work that writes
  /// `y`.
  /// @param pool provides memory for the tensor that the copy becomes.
  /// @param back set to the copy.
  void to_host(const device_stream& stream, const const_tensor_view& y,
               tensor_pool& pool, way_back& back);

  /// Returns what `to_host` has copied, when the stream has done it.
  [[nodiscard]] shared_tensor arrived(way_back& back);

private:
  [[nodiscard]] pinned_memory take(const device_stream& stream,
                                   std::size_t bytes);

  upload_memory uploads_;
  std::vector<pinned_memory> idle_;
};

} // namespace syncnorm::detail
