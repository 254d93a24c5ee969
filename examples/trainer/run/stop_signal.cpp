#include "trainer/run/stop_signal.hpp"

#include <atomic>
#include <csignal>

namespace syncnorm::train {

namespace {

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch lock-free atomics only");

/// Also in a handler.
void handle_stop(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

extern "C" void request_stop(int) {
  handle_stop(SIG_DFL);
  requested.store(true, std::memory_order_relaxed);
}

} // namespace

void catch_stop_signals() {
  handle_stop(request_stop);
}

void ignore_write_signals() {
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  sigemptyset(&ignored.sa_mask);
  sigaction(SIGXFSZ, &ignored, nullptr);
  sigaction(SIGPIPE, &ignored, nullptr);
}

bool stop_requested() noexcept {
  return requested.load(std::memory_order_relaxed);
}

} // namespace syncnorm::train
