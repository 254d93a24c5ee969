#pragma once

#include "syncnorm/future_result.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace syncnorm::detail {

/// Where a master puts the reply for an ordinary thread: the writer of the
/// `future_result` that the thread waits on. Stays inside the process. The type
/// of the result is erased so that an application registers its own messages
/// only; `slave_pipe<In, Out>` and `sync_master_actor<In, Out>` agree on it.
struct reply_slot {
  std::shared_ptr<void> writer;

  /// Whether a thread of this process has made it. What another node sends as
  /// one arrives empty (CAF 0.17) or not at all.
  [[nodiscard]] bool is_from_here() const noexcept {
    return writer != nullptr;
  }
};

/// @param replica as for `future_writer`.
template <class T>
reply_slot make_reply_slot(std::shared_ptr<future_result<T>> future,
                           std::int64_t replica = no_replica) {
  return {std::make_shared<future_writer<T>>(std::move(future), replica)};
}

template <class T>
std::shared_ptr<future_writer<T>> writer_of(reply_slot&& slot) {
  return std::static_pointer_cast<future_writer<T>>(std::move(slot.writer));
}

} // namespace syncnorm::detail
