#include "trainer/run/stop_signal.hpp"

#include <atomic>
#include <csignal>

namespace syncnorm::train {

namespace {

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch lock-free atomics only");

extern "C" void request_stop(int) {
  requested.store(true, std::memory_order_relaxed);
}

} // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
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
