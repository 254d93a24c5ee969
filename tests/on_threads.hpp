#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace syncnorm::testing {

/// Runs `body(r)` for each of `n` copies on a thread of its own and waits.
/// Returns what each threw, or null.
inline std::vector<std::exception_ptr>
on_threads(std::size_t n, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> errors(n);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (auto& thread : threads)
    thread.join();
  return errors;
}

inline void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  for (const auto& x : errors)
    if (x)
      std::rethrow_exception(x);
}

} // namespace syncnorm::testing
