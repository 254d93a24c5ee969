#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/detail/is_distant.hpp"
#include "syncnorm/detail/thread_link.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace syncnorm::detail {

/// Stands for an ordinary thread among the actors: the master monitors it, and
/// it exits when the thread lets go of its pipe. It also rings when the thread
/// waits past its own deadline, and forwards to a master on another node, whose
/// loss it tells.
template <class In, class Out>
class pipe_agent : public caf::event_based_actor {
public:
  using master_type = sync_master_actor<In, Out>;
  using link_ptr = std::shared_ptr<thread_link<Out>>;
  using ticket_future = std::shared_ptr<future_result<slave_ticket>>;

  pipe_agent(caf::actor_config& config, master_type master, link_ptr link)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        link_{std::move(link)} {}

  const char* name() const override {
    return "syncnorm.pipe_agent";
  }

  caf::behavior make_behavior() override {
    // A master of this node answers as it ends.
    if (is_distant(master_))
      detail::monitor(this, caf::actor_cast<caf::actor>(master_),
                      [this](const caf::actor_addr&, const caf::error& reason) {
                        on_lost(reason);
                      });
    return {
        [this](register_slave_atom, std::int64_t identifier,
               reply_slot& ticket) { enlist(identifier, ticket); },
        [this](run_slave_atom, const round_tag& tag, In& message,
               reply_slot& slot) { forward(tag, message, slot); },
        [this](give_up_atom, const round_tag& tag, std::string& why) {
          detail::send(this, master_, give_up_atom_v, tag, std::move(why));
        },
        [this](check_deadline_atom) { check(); },
    };
  }

private:
  void enlist(std::int64_t identifier, reply_slot& slot) {
    identifier_ = identifier;
    ticket_ = writer_of<slave_ticket>(std::move(slot));
    detail::request(this, master_, register_slave_atom_v, identifier)
        .then([to = ticket_](slave_ticket& ticket) { to->put(ticket); },
              [this, to = ticket_](caf::error& reason) {
                to->put(from_master(reason));
              });
  }

  void forward(const round_tag& tag, In& message, reply_slot& slot) {
    reply_ = writer_of<Out>(std::move(slot));
    detail::request(this, master_, run_slave_atom_v, tag, std::move(message))
        .then([to = reply_](Out& reply) { to->put(std::move(reply)); },
              [this, to = reply_](caf::error& reason) {
                to->put(from_master(reason));
              });
  }

  /// CAF's own errors mean that the master is gone.
  [[nodiscard]] caf::error from_master(const caf::error& reason) const {
    if (code_of(reason))
      return reason;
    return make_error(errc::master_down,
                      "replica " + std::to_string(identifier_)
                          + ": the master is down (" + describe(reason) + ")");
  }

  void on_lost(const caf::error& reason) {
    if (ticket_)
      ticket_->put(from_master(reason));
    if (reply_)
      reply_->put(from_master(reason));
    quit(reason);
  }

  void check() {
    auto left = link_->remaining();
    if (!left)
      return;
    if (left->count() > 0)
      return detail::delayed_send(this, caf::actor{this}, *left,
                                  check_deadline_atom_v);
    auto reason = make_error(errc::deadline_exceeded,
                             "a thread waited past its own deadline for the "
                             "master's answer");
    std::ignore = link_->result->put(reason);
    quit(reason);
  }

  master_type master_;
  link_ptr link_;
  std::int64_t identifier_ = 0;
  /// Of the last registration and of the last message, answered or not.
  std::shared_ptr<future_writer<slave_ticket>> ticket_;
  std::shared_ptr<future_writer<Out>> reply_;
};

} // namespace syncnorm::detail
