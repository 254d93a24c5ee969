#pragma once

#include "syncnorm/shared_tensor.hpp"
#include "tests/actors/batch_norm_reference.hpp"

#include <cstring>
#include <memory>

namespace syncnorm::test {

/// Like std::memcpy, but pointers may be null if there are no bytes.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0)
    std::memcpy(to, from, bytes);
}

/// A tensor on the device of a stream or, without a stream, in host memory.
class placed_tensor {
public:
  placed_tensor(const device_stream& stream, const tensor& content)
      : stream_{stream},
        memory_{content.layout, stream},
        bytes_{content.bytes.size()} {
    if (!stream_) {
      copy_bytes(view().data(), content.bytes.data(), bytes_);
      return;
    }
    pinned_memory host{stream_, bytes_ + 1};
    copy_bytes(host.data(), content.bytes.data(), bytes_);
    stream_.runtime().copy(stream_.run(), view().data(), stream_.where(),
                           host.data(), {}, bytes_);
    stream_.record().synchronize();
  }

  [[nodiscard]] tensor_view view() const {
    return memory_.view();
  }

  [[nodiscard]] shared_tensor share() const {
    return memory_.share();
  }

  [[nodiscard]] tensor read() const {
    return fetch(stream_, view());
  }

  /// Waits for what is enqueued on `stream`, and copies.
  static tensor fetch(const device_stream& stream,
                      const const_tensor_view& view) {
    auto layout = view.layout();
    layout.where = {};
    tensor result{layout};
    if (!stream) {
      copy_bytes(result.bytes.data(), view.data(), result.bytes.size());
      return result;
    }
    pinned_memory host{stream, result.bytes.size() + 1};
    stream.runtime().copy(stream.run(), host.data(), {}, view.data(),
                          stream.where(), result.bytes.size());
    stream.record().synchronize();
    copy_bytes(result.bytes.data(), host.data(), result.bytes.size());
    return result;
  }

private:
  device_stream stream_;
  tensor_memory memory_;
  std::size_t bytes_;
};

} // namespace syncnorm::test
