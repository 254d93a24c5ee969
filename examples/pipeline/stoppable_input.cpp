#include "stoppable_input.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace pipeline {

namespace {

int open_or_throw(const std::string& path) {
  if (path == "-")
    return STDIN_FILENO;
  // Does not wait for somebody to write to a pipe: before that, the pipe has
  // neither something to read nor an end.
  auto result = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (result < 0)
    throw std::runtime_error{path
                             + ": cannot be opened: " + std::strerror(errno)};
  return result;
}

} // namespace

stoppable_input::stoppable_input(const std::string& path,
                                 std::shared_ptr<const stop_signal> stop)
    : std::istream{nullptr},
      buffer_{open_or_throw(path), path == "-" ? "standard input" : path,
              std::move(stop)} {
  rdbuf(&buffer_);
}

stoppable_input::buffer::buffer(int descriptor, std::string name,
                                std::shared_ptr<const stop_signal> stop)
    : descriptor_{descriptor},
      name_{std::move(name)},
      stop_{std::move(stop)},
      bytes_{} {}

stoppable_input::buffer::~buffer() {
  if (descriptor_ != STDIN_FILENO)
    ::close(descriptor_);
}

stoppable_input::buffer::int_type stoppable_input::buffer::underflow() {
  while (stop_->wait_for(descriptor_)) {
    auto n = ::read(descriptor_, bytes_.data(), bytes_.size());
    if (n > 0) {
      setg(bytes_.data(), bytes_.data(), bytes_.data() + n);
      return traits_type::to_int_type(bytes_[0]);
    }
    if (n == 0)
      break;
    if (errno != EINTR && errno != EAGAIN)
      throw std::runtime_error{name_
                               + ": cannot be read: " + std::strerror(errno)};
  }
  return traits_type::eof();
}

} // namespace pipeline
