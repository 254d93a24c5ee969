#pragma once

#include "syncnorm/detail/request_master.hpp"
#include "syncnorm/detail/round_keeper.hpp"
#include "syncnorm/merge_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// The relay actor: a master to its own slaves, one participant to its parent.
/// It registers there when its first slave registers here, merges what its
/// replicas send, and hands the parent's reply on to all of them.
template <class In, class Out>
class sync_relay_impl : public round_keeper<In, Out> {
public:
  using base = round_keeper<In, Out>;
  using typename base::fault;
  using master_type = sync_master_actor<In, Out>;
  using merge_type = std::function<In(std::span<identified<In>>)>;

  sync_relay_impl(caf::actor_config& config, master_type parent,
                  sync_options options, std::int64_t first, std::int64_t count,
                  merge_type merge)
      : base{config, std::move(options), roster{first, count}, true},
        parent_{std::move(parent)},
        me_{participant::relay(first, count)},
        merge_{std::move(merge)} {}

  const char* name() const override {
    return "syncnorm.relay";
  }

  void on_exit() override {
    refuse_guests(
        make_error(errc::master_down, exited_text(this->where() + ": the relay",
                                                  this->fail_state())));
    base::on_exit();
    parent_ = nullptr;
  }

private:
  struct guest {
    round_tag tag;
    caf::typed_response_promise<slave_ticket> promise;
  };

  struct departure {
    caf::actor_addr who;
    caf::error reason;
  };

  // -- registration -----------------------------------------------------------

  caf::result<slave_ticket> welcome(const round_tag& tag) override {
    if (upstream_)
      return this->ticket_for(tag);
    auto promise = this->template make_response_promise<slave_ticket>();
    guests_.push_back({tag, promise});
    join();
    return promise;
  }

  [[nodiscard]] bool has_welcomed() const override {
    return upstream_.has_value();
  }

  void join() {
    if (joining_)
      return;
    this->watch_actor(caf::actor_cast<caf::actor>(parent_));
    // The timer would keep a relay alive whose last handle is gone.
    auto answer = next_answer(this);
    joining_ = answer;
    detail::request_within(this, registration_time, parent_,
                           register_relay_atom_v, me_.identifier, me_.count)
        .then(
            [this, answer](slave_ticket& ticket) {
              end_timer(this, answer);
              if (joining_ == answer)
                on_ticket(ticket);
            },
            [this, answer](caf::error& reason) {
              end_timer(this, answer);
              if (joining_ == answer)
                on_no_ticket(reason);
            });
  }

  void on_no_ticket(const caf::error& reason) {
    joining_.reset();
    auto why = from_parent(reason);
    refuse_guests(why);
    if (!this->failure())
      this->fail(why, fault::elsewhere);
    blame_departed();
  }

  void on_ticket(const slave_ticket& ticket) {
    joining_.reset();
    upstream_ = ticket.first;
    this->adopt_rules(ticket);
    if (ticket.first.layer != this->layer()) {
      auto why =
          make_error(errc::wrong_layer, wrong_parent_text(this->where(), me_));
      refuse_guests(why);
      this->fail(why);
      return blame_departed();
    }
    for (auto& x : std::exchange(guests_, {}))
      x.promise.deliver(this->ticket_for(x.tag));
    if (this->failure())
      on_failed(fault::here);
    blame_departed();
  }

  /// Blames those who left while the parent was asked: the parent's policy,
  /// once it is known, says what that means.
  void blame_departed() {
    for (auto& x : std::exchange(departed_, {}))
      base::on_down(x.who, x.reason);
  }

  void refuse_guests(const caf::error& why) {
    for (auto& x : std::exchange(guests_, {}))
      x.promise.deliver(why);
  }

  /// A slave that has left must not keep its identifier until the parent
  /// answers.
  void on_contest() override {
    blame_departed();
    if (undecided_)
      this->fail(*undecided_);
  }

  void on_new_generation() override {
    refuse_guests(
        make_error(errc::stale, this->where() + ": a new generation began"));
  }

  // -- a round ----------------------------------------------------------------

  void complete(std::span<identified<In>> messages) override {
    auto round = this->current_round();
    detail::request(this, parent_, run_relay_atom_v, *upstream_,
                    wrap_parts(merge_blocks(messages), this->waited()))
        .then(
            [this, round](Out& reply) {
              if (!is_current(round))
                return;
              ++upstream_->round;
              undecided_.reset();
              this->answer([&](std::size_t) { return reply; });
            },
            [this, round](caf::error& reason) {
              if (is_current(round))
                this->fail(from_parent(reason), fault::elsewhere);
            });
  }

  /// Merges the messages of each tree node that is wholly this relay's.
  std::vector<identified<In>> merge_blocks(std::span<identified<In>> messages) {
    std::vector<identified<In>> result;
    auto blocks = tree_blocks(me_.identifier, me_.count);
    blocks.push_back(me_.identifier + me_.count);
    for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
      auto end = std::ranges::lower_bound(messages, blocks[i + 1], {},
                                          &identified<In>::identifier);
      auto n = static_cast<std::size_t>(end - messages.begin());
      auto some = messages.first(n);
      messages = messages.subspan(n);
      if (some.size() == 1)
        result.push_back({blocks[i], std::move(some[0].message)});
      else if (!some.empty())
        result.push_back({blocks[i], merge_(some)});
    }
    return result;
  }

  [[nodiscard]] bool is_current(const typename base::round_name& round) const {
    return upstream_ && round == this->current_round();
  }

  // -- failure ----------------------------------------------------------------

  /// The parent's error; CAF's own errors mean that the parent is gone.
  caf::error from_parent(const caf::error& reason) const {
    if (code_of(reason))
      return reported_error(reason, errc::master_down);
    return make_error(errc::master_down,
                      this->where()
                          + ": the master, or a relay on the way to "
                            "it, is down ("
                          + describe(reason) + ")");
  }

  [[nodiscard]] bool is_from_parent() {
    return parent_
           && this->current_sender().get()
                  == caf::actor_cast<caf::actor_control_block*>(parent_);
  }

  /// The messages of a complete round are with the parent. So the round fails
  /// for all replicas of the tree, or for none: then the next round fails, as
  /// the parent says.
  bool is_decided_above(const caf::error& reason) override {
    if (!this->is_complete() || !upstream_)
      return false;
    if (!undecided_) {
      undecided_ = reason;
      detail::send(this, parent_, round_failed_atom_v, *upstream_, reason);
    }
    return true;
  }

  void on_failed(fault from) override {
    undecided_.reset();
    if (from == fault::here && upstream_)
      detail::send(this, parent_, round_failed_atom_v, *upstream_,
                   *this->failure());
    upstream_.reset();
  }

  void on_deserted(const caf::error& reason) override {
    this->fail(reason);
  }

  void on_round_failed(const round_tag& tag, const caf::error& why) override {
    if (!is_from_parent())
      return base::on_round_failed(tag, why);
    if (is_mine(tag))
      this->fail_as_reported(why);
  }

  void on_down(const caf::actor_addr& who, const caf::error& reason) override {
    if (parent_ && is_same_actor(who, parent_.address()))
      on_no_ticket(reason);
    if (joining_)
      departed_.push_back({who, reason});
    else
      base::on_down(who, reason);
  }

  [[nodiscard]] bool is_mine(const round_tag& tag) const {
    return upstream_ && tag.layer == upstream_->layer
           && tag.generation == upstream_->generation;
  }

  void on_report_late(const round_tag& tag, caf::timespan grace) override {
    if (!is_from_parent() || !is_mine(tag) || tag.round != upstream_->round
        || this->is_complete())
      return;
    auto half = std::clamp(grace, caf::timespan{0}, this->deadline()) / 2;
    if (!this->is_patient() && !this->ask_late_relays(half))
      on_late();
  }

  /// A chain of several relays has as long as a master.
  [[nodiscard]] caf::timespan grace() const override {
    return base::grace() / 4;
  }

  /// Tells the parent, which says who else is late. This relay waits for that,
  /// unless the parent is silent, or goes on without those who are late.
  void on_late() override {
    if (!upstream_ || reported_ == upstream_
        || this->policy() != failure_policy::fail_round)
      return this->expire();
    reported_ = upstream_;
    detail::send(this, parent_, round_failed_atom_v, *upstream_,
                 this->lateness());
    this->be_patient(relay_patience(this->deadline()) - this->elapsed());
  }

  /// The parent's own deadline comes first; this limit is for a parent that
  /// does not answer at all.
  [[nodiscard]] caf::timespan limit() const override {
    return this->is_complete() ? relay_patience(this->deadline())
                               : this->deadline();
  }

  void on_overdue() override {
    this->fail(make_error(errc::deadline_exceeded,
                          silent_parent_text(this->where(), limit(), me_)));
  }

  master_type parent_;
  const participant me_;
  const merge_type merge_;
  /// The tag of the next message to the parent; empty unless registered, and
  /// again once the round has failed.
  std::optional<round_tag> upstream_;
  /// The error of a participant here that the parent was told while it had the
  /// messages of this round; kept until it answers them.
  std::optional<caf::error> undecided_;
  /// The tag of the message that was last reported late to the parent.
  std::optional<round_tag> reported_;
  /// The id of the parent's answer to a registration, while that is under way.
  std::optional<caf::message_id> joining_;
  /// Who has exited since that registration began.
  std::vector<departure> departed_;
  /// Slaves that wait for their ticket until the parent has answered.
  std::vector<guest> guests_;
};

} // namespace syncnorm::detail
