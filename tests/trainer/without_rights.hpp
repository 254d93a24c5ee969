#pragma once

#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace syncnorm::train {

inline const std::string no_other_user = "the user cannot be changed";

/// The text of what `f` throws in a process without any rights.
template <class F>
std::string message_without_rights(F f) {
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  auto child = ::fork();
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    auto is_nobody = ::getuid() != 0 || ::setuid(nobody) == 0;
    auto text = is_nobody ? message_of(f) : no_other_user;
    auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(written < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string result(1000, ' ');
  auto n = ::read(ends[0], result.data(), result.size());
  result.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return result;
}

} // namespace syncnorm::train
