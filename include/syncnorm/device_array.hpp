#pragma once

#include "syncnorm/device_runtime.hpp"

#include <cstddef>
#include <memory>

namespace syncnorm {

/// An event of a stream, recorded once. Copies share it.
class device_event {
public:
  /// An event that has passed.
  device_event() = default;

  /// Whether the stream has passed it.
  /// @throws error `device_failure`.
  [[nodiscard]] bool has_passed() const;

  /// Waits until the stream has passed it, without a deadline.
  /// @throws error `device_failure` if the device or an earlier operation has
  ///         failed.
  void synchronize() const;

private:
  friend class device_stream;

  struct state;

  std::shared_ptr<const state> state_;
};

/// A stream of a device, and the runtime that knows it. Copies share it. A
/// stream that this class has made ends with the last copy.
class device_stream {
public:
  /// No stream.
  device_stream() = default;

  /// @throws error `device_unavailable` if `where` is not there, and as
  ///         `device_runtime::make_stream`.
  [[nodiscard]] static device_stream make(device_runtime& runtime,
                                          const device& where);

  /// Somebody else's stream, null for the device's default one. It must outlive
  /// this object, its copies and the arrays that were made on it.
  /// @throws error `device_unavailable` if `where` is not there. If the stream
  ///         is of another device, its first use fails with `device_mismatch`.
  [[nodiscard]] static device_stream borrow(device_runtime& runtime,
                                            const device& where, void* stream);

  /// Whether there is a stream.
  [[nodiscard]] explicit operator bool() const noexcept {
    return state_ != nullptr;
  }

  /// The runtime that knows it. There must be a stream.
  [[nodiscard]] device_runtime& runtime() const noexcept;

  /// Its device. There must be a stream.
  [[nodiscard]] const device& where() const noexcept;

  /// The execution for kernel calls. There must be a stream.
  [[nodiscard]] const execution& run() const noexcept;

  /// An event after everything that has been enqueued.
  /// @throws error `invalid_argument` if there is no stream, `device_failure`.
  [[nodiscard]] device_event record() const;

  /// What is enqueued from here on waits for `event`; the caller does not. An
  /// event that was never recorded is not waited for.
  /// @throws error as `record`, if `event` was recorded.
  void wait_for(const device_event& event) const;

  /// Whether they are the same stream.
  friend bool operator==(const device_stream& a,
                         const device_stream& b) noexcept;

private:
  struct state;

  std::shared_ptr<const state> state_;
};

/// Host memory for copies to and from a device; copies share it.
class pinned_memory {
public:
  pinned_memory() = default;

  /// Takes memory of that size.
  /// @throws error `invalid_argument` if there is no stream, `device_failure`.
  pinned_memory(const device_stream& stream, std::size_t bytes);

  /// The memory.
  [[nodiscard]] void* data() const noexcept {
    return data_.get();
  }
  /// Its size in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return bytes_;
  }

private:
  std::size_t bytes_ = 0;
  std::shared_ptr<void> data_;
};

class device_reading;

/// An array in the memory of a device: written once, in one stream, and from
/// then on read in any stream. Copies and parts share its memory; when the last
/// of them goes, the memory is given back, in the order of the stream that
/// wrote it.
class device_array {
public:
  /// No array.
  device_array() = default;

  /// Memory for `size` elements, to be written by what is enqueued on `stream`
  /// before `publish`.
  /// @throws error `invalid_argument` if there is no stream,
  ///         `device_unavailable` on a CUDA device that has no memory pools or
  ///         is beyond the first 128, `device_failure`.
  device_array(const device_stream& stream, dtype type, std::size_t size);

  /// Declares it written: records the ready-event. Call it once, before anybody
  /// else gets a copy.
  /// @throws error `invalid_argument` if there is no array, `device_failure`.
  void publish();

  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept;
  /// Size in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Type of the elements.
  [[nodiscard]] dtype type() const noexcept;

  /// Null if there is no array.
  [[nodiscard]] void* data() const noexcept;

  /// Element `i`, for kernels.
  [[nodiscard]] void* at(std::size_t i) const noexcept;

  /// The stream that writes it, on the device where it lies.
  [[nodiscard]] const device_stream& stream() const noexcept;

  /// The `size` elements from `first` on, as an array. It is published when
  /// this one is.
  /// @throws error `invalid_argument` if they are not all in this array.
  [[nodiscard]] device_array part(std::size_t first, std::size_t size) const;

  /// Lets `reader`, a stream of the same device, read it after the ready-event,
  /// as long as the result is kept. If there is no array, nothing is read.
  /// @throws error `invalid_argument` if there is an array and no stream,
  ///         `device_failure`.
  [[nodiscard]] device_reading read_on(const device_stream& reader) const;

  /// The array itself if it lies on the device of `to`, or else a copy there,
  /// enqueued on `to` after the ready-event.
  /// @throws error as `read_on`.
  [[nodiscard]] device_array on_device_of(const device_stream& to) const;

  /// Enqueues, on the stream that writes it, a copy to `host`, which must have
  /// at least as many bytes. Nothing waits for it.
  /// @throws error `workspace_too_small` if `host` has fewer bytes,
  ///         `invalid_argument` if there is no array, `device_failure`.
  void copy_to(const pinned_memory& host) const;

private:
  friend class device_reading;

  struct block;

  std::shared_ptr<block> block_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

/// An array while a stream reads it. When this object is destroyed, the stream
/// that wrote the array waits for the reader before it may give back the
/// memory.
class device_reading {
public:
  /// Nothing is read.
  device_reading() = default;
  /// Takes over the reading.
  device_reading(device_reading&&) noexcept = default;
  device_reading& operator=(device_reading&&) = delete;
  device_reading(const device_reading&) = delete;
  device_reading& operator=(const device_reading&) = delete;
  ~device_reading();

  /// Null if nothing is read.
  [[nodiscard]] const void* data() const noexcept {
    return array_.data();
  }

  /// Address of element `i`.
  [[nodiscard]] const void* at(std::size_t i) const noexcept {
    return array_.at(i);
  }

private:
  friend class device_array;

  device_reading(device_array array, device_stream reader);

  device_array array_;
  device_stream reader_;
};

} // namespace syncnorm
