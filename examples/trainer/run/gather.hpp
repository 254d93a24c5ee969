#pragma once

#include "trainer/run/messages.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/errors.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <future>
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
  /// Whether it answered nothing at all: the error is then the asker's, and its
  /// text leaves out who it was.
  bool silent = false;
};

template <class Result>
using answers = std::vector<answer<Result>>;

/// How long `gather` waits.
struct gather_limits {
  /// From the first error on: then the others must have had one as well.
  caf::timespan after_error = std::chrono::seconds{60};
  /// From the first answer on.
  caf::timespan after_answer = std::chrono::seconds{600};
  /// For the first answer; nothing: for as long as all of them need.
  std::optional<caf::timespan> first = std::nullopt;
};

/// Sends one request to each of several replicas, and collects the answers. A
/// replica whose process is gone answers by an error: CAF itself would leave
/// the request open.
template <class Result, class Make>
class gatherer : public caf::event_based_actor {
public:
  using result_type = answers<Result>;

  gatherer(caf::actor_config& config, std::vector<replica_actor> members,
           Make make, caf::timespan after_error, std::promise<void> asked,
           std::promise<void> first, std::promise<result_type> out)
      : caf::event_based_actor{config},
        members_{std::move(members)},
        make_{std::move(make)},
        after_error_{after_error},
        asked_{std::move(asked)},
        first_{std::move(first)},
        out_{std::move(out)},
        result_(members_.size()),
        settled_(members_.size()),
        open_{members_.size()} {}

  const char* name() const override {
    return "syncnorm.train.gatherer";
  }

  caf::behavior make_behavior() override {
    for (std::size_t i = 0; i < members_.size(); ++i)
      ask(i);
    asked_.set_value();
    return {[this](expire_atom) { expire(); }};
  }

private:
  void ask(std::size_t i) {
    compat::monitor(this, caf::actor_cast<caf::actor>(members_[i]),
                    [this](const caf::actor_addr& who, const caf::error& why) {
                      on_down(who, why);
                    });
    auto on_error = [this, i](caf::error& x) { fail(i, std::move(x)); };
    if constexpr (std::is_same_v<Result, acknowledged>)
      make_(this, members_[i], i)
          .then([this, i] { settle(i, acknowledged{}); }, on_error);
    else
      make_(this, members_[i], i)
          .then([this, i](const Result& x) { settle(i, x); }, on_error);
  }

  void on_down(const caf::actor_addr& who, const caf::error& why) {
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i].address() == who && !settled_[i])
        miss(i, make_error(errc::participant_down,
                           fmt::format("is gone ({})", text_of(why))));
  }

  void settle(std::size_t i, Result x) {
    if (!settled_[i])
      result_[i].value = std::move(x);
    close(i);
  }

  void fail(std::size_t i, caf::error x) {
    if (!settled_[i])
      result_[i].problem = std::move(x);
    close(i);
    if (!failed_ && open_ > 0)
      compat::delayed_send(this, caf::actor{this}, after_error_, expire_atom_v);
    failed_ = true;
  }

  void miss(std::size_t i, caf::error x) {
    result_[i].silent = true;
    fail(i, std::move(x));
  }

  void expire() {
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (!settled_[i])
        miss(i, make_error(errc::deadline_exceeded, "did not answer in time"));
  }

  void close(std::size_t i) {
    if (settled_[i])
      return;
    settled_[i] = true;
    if (!std::exchange(answered_, true))
      first_.set_value();
    if (--open_ > 0)
      return;
    out_.set_value(std::move(result_));
    quit();
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

/// What `begin_gather` was asked for.
template <class Result>
struct pending_answers {
  std::future<void> first;
  std::future<answers<Result>> all;
  /// Sent `expire_atom`, it waits no more.
  caf::actor asker;
  gather_limits limits;
};

/// Requests `make(self, member, index)` of all `members`. What is requested
/// after it returns, by whomever here, comes to them later.
/// @returns what `end_gather` waits for.
template <class Result, class Make>
pending_answers<Result> begin_gather(caf::actor_system& system,
                                     const std::vector<replica_actor>& members,
                                     Make make, const gather_limits& limits) {
  // Not a `future_result`: whoever waits for that looks for it for a while,
  // here on the core of a replica.
  std::promise<answers<Result>> promise;
  std::promise<void> first;
  pending_answers<Result> pending{first.get_future(), promise.get_future(),
                                  nullptr, limits};
  if (members.empty()) {
    first.set_value();
    promise.set_value({});
    return pending;
  }
  std::promise<void> asked;
  auto all_asked = asked.get_future();
  pending.asker = system.spawn<gatherer<Result, Make>>(
      members, std::move(make), limits.after_error, std::move(asked),
      std::move(first), std::move(promise));
  all_asked.wait();
  return pending;
}

/// Waits for the answers of `count` members; in the members' order. Whoever has
/// not answered when the time is over, has an error.
template <class Result>
answers<Result> end_gather(pending_answers<Result> pending, std::size_t count) {
  auto is_late = [](const auto& future, caf::timespan limit) {
    return future.wait_for(limit) == std::future_status::timeout;
  };
  const auto& limits = pending.limits;
  // No timer of CAF's: that would keep the asker for as long.
  auto late = limits.first && is_late(pending.first, *limits.first);
  if (!late) {
    pending.first.wait();
    late = is_late(pending.all, limits.after_answer);
  }
  if (late)
    compat::anon_send(pending.asker, expire_atom_v);
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

/// Both, one after the other.
template <class Result, class Make>
answers<Result> gather(caf::actor_system& system,
                       const std::vector<replica_actor>& members, Make make,
                       const gather_limits& limits) {
  return end_gather(
      begin_gather<Result>(system, members, std::move(make), limits),
      members.size());
}

} // namespace syncnorm::train
