#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/detail/request_master.hpp"
#include "syncnorm/detail/thread_link.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace syncnorm::detail {

/// Stands for an ordinary thread among the actors: the master monitors it, and
/// it exits when the thread lets go of its pipe. It also rings when the thread
/// waits past its own deadline, and forwards to a master on another node, whose
/// loss it reports. Only this process can make it do anything: by a slot, which
/// does not travel.
template <class In, class Out>
class pipe_agent : public caf::event_based_actor {
public:
  using master_type = sync_master_actor<In, Out>;
  using link_ptr = std::shared_ptr<thread_link<Out>>;

  pipe_agent(caf::actor_config& config, master_type master, link_ptr link)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        link_{std::move(link)} {}

  const char* name() const override {
    return "syncnorm.pipe_agent";
  }

  /// A timer may keep what is left of the agent.
  void on_exit() override {
    master_ = nullptr;
  }

  caf::behavior make_behavior() override {
    return {
        [this](register_slave_atom, std::int64_t identifier,
               reply_slot& ticket) {
          if (ticket.is_from_here())
            enlist(identifier, ticket);
        },
        [this](run_slave_atom, const round_tag& tag, In& message,
               reply_slot& slot) {
          if (slot.is_from_here())
            forward(tag, message, slot);
        },
        [this](give_up_atom, const round_tag& tag, std::string& why,
               const reply_slot& proof) {
          if (proof.is_from_here())
            detail::send(this, master_, give_up_atom_v, tag, std::move(why));
        },
        [this](check_deadline_atom) { check(); },
    };
  }

private:
  /// The master, or the actor that answers in its place.
  master_type reachable(std::int64_t identifier) {
    return has_exited(master_) ? stand_in_for(this, master_, identifier)
                               : master_;
  }

  void enlist(std::int64_t identifier, reply_slot& slot) {
    auto master = reachable(identifier);
    answer_if_lost(this, master, identifier);
    settle(detail::request_within(this, registration_time, master,
                                  register_slave_atom_v, identifier),
           identifier, writer_of<slave_ticket>(std::move(slot)));
  }

  void forward(const round_tag& tag, In& message, reply_slot& slot) {
    auto master = reachable(tag.identifier);
    answer_if_lost(this, master, tag.identifier);
    settle(detail::request(this, master, run_slave_atom_v, tag,
                           std::move(message)),
           tag.identifier, writer_of<Out>(std::move(slot)));
  }

  /// Puts the master's answer where the thread waits. CAF's own errors mean
  /// that the master is gone.
  template <class Handle, class T>
  void settle(Handle answer, std::int64_t identifier,
              std::shared_ptr<future_writer<T>> to) {
    std::move(answer).then([to](T& x) { to->put(std::move(x)); },
                           [to, identifier](caf::error& reason) {
                             to->put(code_of(reason)
                                         ? std::move(reason)
                                         : master_is_down(identifier, reason));
                           });
  }

  void check() {
    auto left = link_->remaining();
    if (!left)
      return;
    if (left->count() > 0)
      return detail::delayed_send(this, caf::actor{this}, *left,
                                  check_deadline_atom_v);
    if (link_->leave())
      quit(make_error(errc::deadline_exceeded, thread_link<Out>::departure));
  }

  master_type master_;
  link_ptr link_;
};

template <class In, class Out>
caf::actor spawn_pipe_agent(caf::actor_system& system,
                            sync_master_actor<In, Out> master,
                            std::shared_ptr<thread_link<Out>> link) {
  logger_guard guard;
  return system.spawn<pipe_agent<In, Out>>(std::move(master), std::move(link));
}

} // namespace syncnorm::detail
