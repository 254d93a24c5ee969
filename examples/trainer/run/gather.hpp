#pragma once

#include "trainer/run/asker.hpp"
#include "trainer/run/messages.hpp"

#include "syncnorm/caf_error.hpp"
#include "syncnorm/compat.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncnorm::train {

/// For answers without a value.
struct acknowledged {};

/// What one replica answered: a value or an error.
template <class Result>
struct answer {
  std::optional<Result> value;
  caf::error problem;
  /// Whether the replica did not answer at all: the error is then the asker's,
  /// and its text does not name the replica.
  bool silent = false;
};

template <class Result>
using answers = std::vector<answer<Result>>;

/// How long `gather` waits.
struct gather_limits {
  /// From the first error on: by then the others must have got one as well.
  caf::timespan after_error = std::chrono::seconds{60};
  /// From the first answer on.
  caf::timespan after_answer = std::chrono::seconds{600};
  /// For the first answer; nothing: for as long as all of them need.
  std::optional<caf::timespan> first = std::nullopt;
};

/// Sends one request to each of several replicas, and collects the answers. If
/// a replica's process is gone, its answer is an error: CAF itself would leave
/// the request open.
template <class Result, class Make>
class gatherer : public errand,
                 public std::enable_shared_from_this<gatherer<Result, Make>> {
public:
  using result_type = answers<Result>;

  gatherer(std::vector<replica_actor> members, Make make,
           caf::timespan after_error)
      : members_{std::move(members)},
        make_{std::move(make)},
        after_error_{after_error},
        result_(members_.size()),
        settled_(members_.size()),
        open_{members_.size()} {}

  /// Ready when the requests are sent.
  [[nodiscard]] std::future<void> asked() {
    return asked_.get_future();
  }

  /// Ready when somebody has answered.
  [[nodiscard]] std::future<void> first() {
    return first_.get_future();
  }

  [[nodiscard]] std::future<result_type> all() {
    return out_.get_future();
  }

  void start(asker& self) override {
    for (std::size_t i = 0; i < members_.size(); ++i)
      ask(self, i);
    asked_.set_value();
    if (members_.empty()) {
      first_.set_value();
      end(self);
    }
  }

  void on_down(asker& self, const caf::actor_addr& who,
               const caf::error& why) override {
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i].address() == who)
        miss(self, i, is_gone(why));
  }

  void expire(asker& self) override {
    for (std::size_t i = 0; i < members_.size(); ++i)
      miss(self, i,
           make_error(errc::deadline_exceeded, "did not answer in time"));
  }

private:
  static caf::error is_gone(const caf::error& why) {
    return make_error(errc::participant_down,
                      fmt::format("is gone ({})", text_of(why)));
  }

  void ask(asker& self, std::size_t i) {
    if (const auto* why = self.watch(caf::actor_cast<caf::actor>(members_[i])))
      return miss(self, i, is_gone(*why));
    // A replica that never answers leaves its handlers with the asker.
    auto weak = this->weak_from_this();
    auto on_error = [&self, weak, i](caf::error& x) {
      if (auto it = weak.lock())
        it->refuse(self, i, std::move(x));
    };
    if constexpr (std::is_same_v<Result, acknowledged>)
      make_(&self, members_[i], i)
          .then(
              [&self, weak, i] {
                if (auto it = weak.lock())
                  it->settle(self, i, acknowledged{});
              },
              on_error);
    else
      make_(&self, members_[i], i)
          .then(
              [&self, weak, i](const Result& x) {
                if (auto it = weak.lock())
                  it->settle(self, i, x);
              },
              on_error);
  }

  // The first thing heard of a member counts.

  void settle(asker& self, std::size_t i, Result x) {
    if (settled_[i])
      return;
    result_[i].value = std::move(x);
    close(self, i);
  }

  void refuse(asker& self, std::size_t i, caf::error x) {
    // CAF's answer for a replica that has ended meanwhile.
    if (x == caf::sec::request_receiver_down)
      miss(self, i, is_gone(x));
    else
      fail(self, i, std::move(x));
  }

  void miss(asker& self, std::size_t i, caf::error x) {
    if (settled_[i])
      return;
    result_[i].silent = true;
    fail(self, i, std::move(x));
  }

  void fail(asker& self, std::size_t i, caf::error x) {
    if (settled_[i])
      return;
    result_[i].problem = std::move(x);
    close(self, i);
    if (!failed_ && open_ > 0)
      self.expire_after(after_error_, *this);
    failed_ = true;
  }

  void close(asker& self, std::size_t i) {
    settled_[i] = true;
    if (!std::exchange(answered_, true))
      first_.set_value();
    if (--open_ == 0)
      end(self);
  }

  void end(asker& self) {
    out_.set_value(std::move(result_));
    self.forget(*this);
  }

  std::vector<replica_actor> members_;
  Make make_;
  caf::timespan after_error_;
  std::promise<void> asked_;
  std::promise<void> first_;
  std::promise<result_type> out_;
  result_type result_;
  std::vector<bool> settled_;
  std::size_t open_;
  bool answered_ = false;
  bool failed_ = false;
};

/// The answers that `begin_gather` has requested.
template <class Result>
struct pending_answers {
  std::future<void> first;
  std::future<answers<Result>> all;
  gather_limits limits;
  std::uint64_t number = 0;
};

/// Sends the request `make(self, member, index)` to all `members`, by `asker`.
/// Requests sent after this returns, by anybody here, reach them later.
/// @returns what `end_gather` waits for.
template <class Result, class Make>
pending_answers<Result> begin_gather(const caf::actor& asker,
                                     const std::vector<replica_actor>& members,
                                     Make make, const gather_limits& limits) {
  auto it = std::make_shared<gatherer<Result, Make>>(members, std::move(make),
                                                     limits.after_error);
  // Not a `future_result`: a thread that waits for one first polls for a while,
  // here on the core of a replica.
  pending_answers<Result> pending{it->first(), it->all(), limits, it->number};
  auto asked = it->asked();
  // From here on, only the asker owns it: if the asker ends, so do the futures.
  compat::anon_send(asker, ask_atom_v, errand_slot{std::move(it)});
  asked.wait();
  return pending;
}

/// Waits for the answers of `count` members; returns them in the members'
/// order. A member that has not answered in time has an error.
template <class Result>
answers<Result> end_gather(const caf::actor& asker,
                           pending_answers<Result> pending, std::size_t count) {
  auto is_late = [](const auto& future, caf::timespan limit) {
    return future.wait_for(limit) == std::future_status::timeout;
  };
  const auto& limits = pending.limits;
  // Not a CAF timer: it would keep the asker alive for as long.
  auto late = limits.first && is_late(pending.first, *limits.first);
  if (!late) {
    pending.first.wait();
    late = is_late(pending.all, limits.after_answer);
  }
  if (late)
    expire(asker, pending.number);
  try {
    return pending.all.get();
  } catch (const std::future_error&) {
    answers<Result> failed(count);
    for (auto& x : failed)
      x.problem = make_error(errc::master_down, "the actor that asks the "
                                                "replicas is gone");
    return failed;
  }
}

/// `begin_gather`, then `end_gather`.
template <class Result, class Make>
answers<Result> gather(const caf::actor& asker,
                       const std::vector<replica_actor>& members, Make make,
                       const gather_limits& limits) {
  return end_gather(
      asker, begin_gather<Result>(asker, members, std::move(make), limits),
      members.size());
}

} // namespace syncnorm::train
