#include "stop_signal.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace pipeline {

stop_signal::stop_signal() : event_{::eventfd(0, EFD_CLOEXEC)} {
  if (event_ < 0)
    throw std::runtime_error{std::string{"eventfd: "} + std::strerror(errno)};
}

stop_signal::~stop_signal() {
  ::close(event_);
}

void stop_signal::raise(reason why) noexcept {
  int none = 0;
  if (!why_.compare_exchange_strong(none, static_cast<int>(why)))
    return;
  // Never read again, so it stays readable.
  const std::uint64_t one = 1;
  [[maybe_unused]] auto n = ::write(event_, &one, sizeof(one));
}

stop_signal::reason stop_signal::raised() const noexcept {
  return static_cast<reason>(why_.load());
}

bool stop_signal::wait_for(int descriptor) const {
  std::array<pollfd, 2> both{pollfd{descriptor, POLLIN, 0},
                             pollfd{event_, POLLIN, 0}};
  while (::poll(both.data(), both.size(), -1) < 0 && errno == EINTR) {
  }
  return raised() == reason::none;
}

} // namespace pipeline
