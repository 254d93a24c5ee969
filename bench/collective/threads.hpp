#pragma once

#include "syncnorm/future_result.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace syncnorm::bench {

/// Threads that run the same work in parallel with the calling thread, one call
/// after the other: the slaves of the blocking contestants.
class worker_threads {
public:
  /// Runs `rounds` rounds as participant `i`, counted from 1.
  using work = std::function<bool(std::int64_t i, std::int64_t rounds)>;

  worker_threads(std::int64_t count, work f) : slots_(count) {
    for (std::int64_t i = 0; i < count; ++i) {
      slots_[i] = std::make_unique<slot>();
      threads_.emplace_back([this, f, i] {
        while (auto rounds = *slots_[i]->start.get())
          std::ignore = slots_[i]->done.put(f(i + 1, rounds));
      });
    }
  }

  ~worker_threads() {
    start(0);
    for (auto& t : threads_)
      t.join();
  }

  void start(std::int64_t rounds) {
    for (auto& s : slots_)
      std::ignore = s->start.put(rounds);
  }

  bool join() {
    auto good = true;
    for (auto& s : slots_)
      good &= *s->done.get();
    return good;
  }

private:
  struct slot {
    future_result<std::int64_t> start;
    future_result<bool> done;
  };

  std::vector<std::unique_ptr<slot>> slots_;
  std::vector<std::thread> threads_;
};

} // namespace syncnorm::bench
