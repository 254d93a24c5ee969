#pragma once

#include "bench/collective/payload.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

// The reference's design (sync_batchnorm's comm) in C++: one queue for data and
// acknowledgements, one lock and condition variable for each result. It is here
// for comparison, with its known fault: acknowledgements and data share the
// queue. Data that arrives early is kept for the next round, so that rounds
// without a pause work.

namespace syncnorm::bench {

/// `FutureResult` of the reference.
template <class T>
class locked_future {
public:
  void put(T value) {
    std::lock_guard guard{mutex_};
    value_ = std::move(value);
    ready_.notify_one();
  }

  T get() {
    std::unique_lock guard{mutex_};
    ready_.wait(guard, [&] { return value_.has_value(); });
    auto value = std::move(*value_);
    value_.reset();
    return value;
  }

private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<T> value_;
};

/// `queue.Queue` of the reference.
template <class T>
class locked_queue {
public:
  void put(T value) {
    std::lock_guard guard{mutex_};
    values_.push_back(std::move(value));
    ready_.notify_one();
  }

  T get() {
    std::unique_lock guard{mutex_};
    ready_.wait(guard, [&] { return !values_.empty(); });
    auto value = std::move(values_.front());
    values_.pop_front();
    return value;
  }

private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> values_;
};

/// `SyncMaster` and `SlavePipe` of the reference.
template <class T>
class queue_master {
public:
  using callback =
      std::function<std::vector<identified<T>>(std::span<identified<T>>)>;

  queue_master(std::size_t slaves, callback f)
      : callback_{std::move(f)},
        results_(slaves) {}

  T run_slave(std::int64_t identifier, T message) {
    queue_.put({identifier, std::move(message)});
    auto reply = results_[static_cast<std::size_t>(identifier) - 1].get();
    queue_.put({identifier, std::nullopt});
    return reply;
  }

  T run_master(T message) {
    std::vector<identified<T>> messages;
    messages.push_back({0, std::move(message)});
    for (auto& x : early_)
      messages.push_back(std::move(x));
    early_.clear();
    while (messages.size() <= results_.size()) {
      auto x = queue_.get();
      messages.push_back({x.first, std::move(*x.second)});
    }
    auto replies = callback_(messages);
    for (auto& reply : replies)
      if (reply.identifier != 0)
        results_[static_cast<std::size_t>(reply.identifier) - 1].put(
            std::move(reply.message));
    await_acknowledgements();
    return std::move(replies[0].message);
  }

private:
  void await_acknowledgements() {
    for (std::size_t n = 0; n < results_.size();) {
      auto x = queue_.get();
      if (x.second)
        early_.push_back({x.first, std::move(*x.second)});
      else
        ++n;
    }
  }

  callback callback_;
  locked_queue<std::pair<std::int64_t, std::optional<T>>> queue_;
  std::vector<locked_future<T>> results_;
  std::vector<identified<T>> early_;
};

} // namespace syncnorm::bench
