#pragma once

#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/spin.hpp"

#include <caf/expected.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

namespace syncnorm {

/// A one-to-one pipe for one result at a time, from a thread or actor that
/// produces it to a thread that waits for it. It carries a value or an error,
/// each delivered once; after `get` it can carry the next.
///
/// No lock: three states in one `std::atomic`, its `wait` and its `notify_one`.
/// One thread may get. Any thread may put; if two put before a `get`, the
/// second gets an error.
template <class T>
class future_result {
public:
  /// What it delivers.
  using value_type = T;

  future_result() = default;
  future_result(const future_result&) = delete;
  future_result& operator=(const future_result&) = delete;

  /// Hands `result` to the thread that gets it, and wakes it.
  /// @returns no error, or `duplicate_message` if an earlier result has not
  ///          been fetched; then `result` is dropped and the earlier one kept.
  [[nodiscard]] caf::error put(caf::expected<T> result) {
    auto expected = empty;
    if (!state_.compare_exchange_strong(expected, writing,
                                        std::memory_order_acquire))
      return make_error(errc::duplicate_message,
                        "future_result::put: the previous result has not been "
                        "fetched");
    result_.emplace(std::move(result));
    // libstdc++'s `notify_one` first checks whether anybody waits. Only
    // sequential consistency keeps that check after this store: with `release`
    // it may come before, see nobody, and leave the other thread asleep.
    state_.store(ready, std::memory_order_seq_cst);
    state_.notify_one();
    return {};
  }

  /// Waits until a result is put, and returns it. There is no deadline: that is
  /// up to the holder of the other end; see `future_writer`. Do not call it
  /// from one of CAF's workers: the result may need that worker.
  [[nodiscard]] caf::expected<T> get() {
    if (!detail::spin_until(state_, ready))
      wait();
    auto result = std::move(*result_);
    result_.reset();
    fetched_.fetch_add(1, std::memory_order_relaxed);
    state_.store(empty, std::memory_order_release);
    return result;
  }

  /// Returns whether `get` would return at once.
  [[nodiscard]] bool is_ready() const noexcept {
    return state_.load(std::memory_order_acquire) == ready;
  }

  /// How many results `get` has returned.
  [[nodiscard]] std::uint64_t fetched() const noexcept {
    return fetched_.load(std::memory_order_relaxed);
  }

private:
  static constexpr std::uint32_t empty = 0;
  static constexpr std::uint32_t writing = 1;
  static constexpr std::uint32_t ready = 2;

  void wait() const noexcept {
    for (auto seen = state_.load(std::memory_order_acquire); seen != ready;
         seen = state_.load(std::memory_order_acquire))
      state_.wait(seen, std::memory_order_acquire);
  }

  std::atomic<std::uint32_t> state_ = empty;
  std::atomic<std::uint64_t> fetched_ = 0;
  std::optional<caf::expected<T>> result_;
};

/// The right and the duty to put one result. If it is destroyed before it has
/// put a result, for example because the message that carried it was dropped,
/// it puts `master_down`: a `future_result` with a writer is never left
/// waiting.
template <class T>
class future_writer {
public:
  /// The writing end of `future`.
  /// @param replica whose result it is, if that is known; for the text of
  ///                `master_down`.
  explicit future_writer(std::shared_ptr<future_result<T>> future,
                         std::int64_t replica = detail::no_replica)
      : future_{std::move(future)},
        replica_{replica} {}

  future_writer(const future_writer&) = delete;
  future_writer& operator=(const future_writer&) = delete;

  ~future_writer() {
    if (future_)
      put(make_error(errc::master_down,
                     detail::replica_prefix(replica_)
                         + "the master was gone before it answered"));
  }

  /// Hands over the result; every further call does nothing.
  void put(caf::expected<T> result) {
    if (auto future = std::exchange(future_, nullptr))
      std::ignore = future->put(std::move(result));
  }

private:
  std::shared_ptr<future_result<T>> future_;
  std::int64_t replica_;
};

} // namespace syncnorm
