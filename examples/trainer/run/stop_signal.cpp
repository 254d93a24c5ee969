#include "trainer/run/stop_signal.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace syncnorm::train {

namespace {

/// When the stop was requested, in nanoseconds of a clock that only goes
/// forward; 0: not yet.
std::atomic<std::int64_t> requested = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free,
              "a signal handler may touch lock-free atomics only");

/// A terminal and the launcher below it both send one Ctrl-C to a process.
constexpr std::int64_t same_request = 1'000'000'000;

/// Also called in a signal handler, like the next function.
std::int64_t nanoseconds_now() {
  std::timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec + 1;
}

void handle_stop(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

extern "C" void request_stop(int number) {
  auto now = nanoseconds_now();
  std::int64_t first = 0;
  if (requested.compare_exchange_strong(first, now)
      || now - first < same_request)
    return;
  handle_stop(SIG_DFL);
  std::raise(number);
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
  return requested.load(std::memory_order_relaxed) != 0;
}

} // namespace syncnorm::train
