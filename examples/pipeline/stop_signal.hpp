#pragma once

#include <atomic>

namespace pipeline {

/// Ends the stream from outside the source, even while the source waits for
/// input.
class stop_signal {
public:
  enum class reason : int {
    none,
    /// Somebody has seen enough: what was read still goes out, and the stream
    /// ends normally.
    asked,
    /// A stage has failed, and tells the source why.
    failed,
  };

  /// @throws std::runtime_error if the system has no more descriptors.
  stop_signal();
  stop_signal(const stop_signal&) = delete;
  stop_signal& operator=(const stop_signal&) = delete;
  ~stop_signal();

  /// The first reason stays. May be called in signal handlers.
  void raise(reason why) noexcept;

  [[nodiscard]] reason raised() const noexcept;

  /// Waits until `descriptor` has something to read, or its end. Returns false
  /// once the signal is raised.
  [[nodiscard]] bool wait_for(int descriptor) const;

private:
  int event_;
  std::atomic<int> why_ = 0;
};

} // namespace pipeline
