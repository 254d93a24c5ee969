#pragma once

#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/detail/stream_work.hpp"
#include "syncnorm/device_array.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace syncnorm::detail {

/// Some device arrays on their way into host memory.
class host_copy {
public:
  /// Enqueues the copies on `stream`. Nothing waits for them.
  /// @param reuse memory of an earlier copy that is done; used if it is large
  ///              enough.
  host_copy(const device_stream& stream, std::span<const device_array> arrays,
            pinned_memory reuse = {});

  /// What must be done before `read`.
  [[nodiscard]] const stream_work& work() const noexcept {
    return work_;
  }

  /// Memory for the next copy, when this one is done.
  [[nodiscard]] const pinned_memory& memory() const noexcept {
    return host_;
  }

  /// The elements of array `i`, widened; nothing is lost.
  [[nodiscard]] std::vector<double> read(std::size_t i) const;

private:
  struct part {
    std::size_t offset;
    std::size_t size;
    dtype type;
  };

  pinned_memory host_;
  std::vector<part> parts_;
  stream_work work_;
};

/// A message whose arrays are on a device, on its way into host memory.
class host_message {
public:
  /// @param message its values are on a device.
  /// @param reuse as for `host_copy`.
  explicit host_message(batch_norm_message message, pinned_memory reuse = {});

  /// What must be done before `finish`.
  [[nodiscard]] const stream_work& work() const noexcept {
    return copy_.work();
  }

  /// @param reuse set to memory for the next message.
  [[nodiscard]] batch_norm_message finish(pinned_memory& reuse);

private:
  batch_norm_message message_;
  host_copy copy_;
};

/// Host memory for uploads, used again when the device has read it. The
/// destructor waits for that.
class upload_memory {
public:
  upload_memory() = default;
  upload_memory(upload_memory&&) = default;
  upload_memory& operator=(upload_memory&&) = delete;
  ~upload_memory();
  /// A copy begins with none.
  upload_memory(const upload_memory&) {}
  upload_memory& operator=(const upload_memory&) {
    return *this;
  }

  /// Returns an array of `values`, rounded to `type`, whose copy to the device
  /// is enqueued on `stream`.
  [[nodiscard]] device_array upload(const device_stream& stream, dtype type,
                                    std::span<const double> values);

  /// Enqueues on `stream` a copy of `bytes` bytes to `to`, which lies on its
  /// device.
  /// @param fill writes the bytes to host memory.
  template <class F>
  void send(const device_stream& stream, void* to, std::size_t bytes, F fill) {
    if (bytes == 0)
      return;
    auto& from = take(stream, bytes);
    fill(from.memory.data());
    enqueue(stream, to, from, bytes);
  }

private:
  struct slot {
    pinned_memory memory;
    device_event read;
  };

  slot& take(const device_stream& stream, std::size_t bytes);
  void enqueue(const device_stream& stream, void* to, slot& from,
               std::size_t bytes);

  std::vector<slot> slots_;
};

} // namespace syncnorm::detail
