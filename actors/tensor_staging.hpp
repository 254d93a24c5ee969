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
  /// Whether it did, so that the answer goes there, too.
  bool to_host = false;
  /// Where the stream copies it, and what it becomes then.
  pinned_memory copy{};
  std::optional<tensor_memory> memory{};
};

/// The pinned memory through which tensors go from host memory to a device and
/// back. It is used again; nothing here waits for the device, but whoever
/// destroys it does.
class tensor_staging {
public:
  /// Returns `x`, which lies in host memory, on the device of `stream`: the
  /// copy is enqueued there, and `x` needed no more.
  [[nodiscard]] shared_tensor to_device(const device_stream& stream,
                                        const shared_tensor& x);

  /// Enqueues a copy of `y`, which has no gaps, behind what writes it.
  /// @param pool what it becomes lies in memory of that.
  /// @param back set to it.
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
