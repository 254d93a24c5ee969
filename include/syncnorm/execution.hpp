#pragma once

#include "syncnorm/device.hpp"

#include <cstddef>
#include <cstdint>

namespace syncnorm {

/// A way to run the parts of one CPU call side by side, supplied by the
/// caller. A function must call `body(context, i)` once for each `i` in
/// `[0, parts)`, in any order and on any threads, and return after the last
/// one has. `body` does not throw.
struct parallel_for {
  /// One part of the work.
  using body_type = void (*)(void* context, std::int64_t part);

  /// Calls `body(context, part)` for all parts, in any order, and returns when
  /// all have returned.
  void (*run)(void* self, std::int64_t parts, body_type body, void* context);
  /// First argument of `run`.
  void* self = nullptr;
  /// The maximum number of parts that a call is cut into; 1 or more. Results do
  /// not depend on it, bit for bit.
  std::int64_t parts = 1;
};

/// Where an operation runs. On the CPU, it is complete when the function
/// returns. On a CUDA device, it has been enqueued on `stream` by then: the
/// arguments must stay valid until the stream has completed it, and nothing
/// here waits for that. The calling thread's current CUDA device stays as it
/// was, unless nobody has used that device yet; then the device of this
/// execution becomes the current one.
struct execution {
  /// The device.
  device where;
  /// The CUDA stream (`cudaStream_t`) of `where`; null is its default stream.
  /// Ignored on the CPU.
  void* stream = nullptr;
  /// CPU only: how to split the call over threads; null is the calling thread.
  const parallel_for* split = nullptr;
};

/// Memory that an operation may scribble on while it runs, at least as large as
/// its `*_workspace` function says, aligned to 16 bytes (256 on CUDA), on the
/// device of the execution. Operations on one stream may share it if they are
/// enqueued one after the other, not by two threads at the same time.
struct workspace {
  /// The memory.
  void* data = nullptr;
  /// Its size in bytes.
  std::size_t bytes = 0;
};

} // namespace syncnorm
