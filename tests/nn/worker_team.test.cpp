// Threads that cannot be started. A program of its own, because it takes the
// place of the function that starts them.

#include "actors/nn/worker_team.hpp"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>
#include <system_error>

namespace {

/// How many threads can still be started; less than 0: any number.
std::atomic<int> threads_left = -1;

} // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* with,
                              void* (*body)(void*), void* argument) noexcept {
  using function = decltype(&pthread_create);
  static auto next =
      reinterpret_cast<function>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == 0)
    return EAGAIN;
  if (threads_left > 0)
    --threads_left;
  return next(thread, with, body, argument);
}

namespace syncnorm::nn::detail {

namespace {

TEST_CASE("a team of which a thread cannot be started says so, does not wait "
          "for those that were, and the next one works") {
  threads_left = 2;
  CHECK_THROWS_AS(worker_team{4}, std::system_error);
  CHECK(threads_left == 0);
  threads_left = -1;
  worker_team next{4};
  std::atomic<int> calls = 0;
  next.run(4, [&](std::size_t) { ++calls; });
  CHECK(calls == 4);
}

} // namespace

} // namespace syncnorm::nn::detail
