#pragma once

#include "syncnorm/detail/match_replies.hpp"
#include "syncnorm/detail/round_keeper.hpp"
#include "syncnorm/sync_callback.hpp"

#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace syncnorm::detail {

/// The master actor: when every participant has sent its message, it calls the
/// callback, or merges and finishes, and answers.
template <class In, class Out>
class sync_master_impl : public round_keeper<In, Out> {
  static_assert(!std::is_same_v<Out, caf::unit_t>,
                "CAF replies with nothing for a unit_t: use a bool");

public:
  using callback =
      std::variant<sync_callback<In, Out>, sync_reduction<In, Out>>;

  sync_master_impl(caf::actor_config& config, sync_options options,
                   callback make_replies)
      : round_keeper<In, Out>{config, options, roster{options.participants},
                              make_replies.index() == 1},
        make_replies_{std::move(make_replies)} {}

  const char* name() const override {
    return "syncnorm.master";
  }

private:
  void complete(std::span<identified<In>> messages) override {
    if (auto* call = std::get_if<0>(&make_replies_))
      answer_each((*call)(messages));
    else
      answer_all(std::get<1>(make_replies_), messages);
  }

  void answer_each(std::vector<identified<Out>> replies) {
    if (auto mismatch = match_replies(replies, this->members()))
      return this->fail(
          make_error(errc::invalid_reply,
                     this->where() + ": the callback made " + *mismatch));
    this->answer([&](std::size_t i) { return std::move(replies[i].message); });
  }

  void answer_all(const sync_reduction<In, Out>& reduction,
                  std::span<identified<In>> messages) {
    auto fixed = reduction.participants != 0
                 && this->policy() == failure_policy::fail_round;
    if (fixed && this->members().replicas() != reduction.participants)
      return this->fail(
          make_error(errc::unregistered,
                     membership_text(this->where(), reduction.participants,
                                     this->members())));
    auto reply = reduction.finish(reduction.merge(messages));
    this->answer([&](std::size_t) { return reply; });
  }

  std::optional<caf::error> refuse_relay() override {
    if (make_replies_.index() == 1)
      return std::nullopt;
    return make_error(errc::invalid_argument,
                      this->where()
                          + ": a relay needs a master with a sync_reduction; "
                            "this one's callback cannot merge in parts");
  }

  const callback make_replies_;
};

} // namespace syncnorm::detail
