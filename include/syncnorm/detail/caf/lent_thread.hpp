#pragma once

#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/detail/caf/send.hpp"
#include "syncnorm/detail/caf/worker.hpp"

#include <cstddef>
#include <utility>

#if SYNCNORM_CAF_LEGACY
#include <caf/scheduler/abstract_coordinator.hpp>
#endif

namespace syncnorm::detail {

/// The calling thread in place of a CAF worker, for one actor: `send_and_lend`
/// runs on it. Other actors that get work on the way are left to the worker
/// whose thread this is, or to the system's own workers.
class lent_thread final : public worker_type {
public:
  explicit lent_thread(caf::actor_system& system, worker_type* worker = nullptr)
      : home_{&system},
        worker_{worker} {
#if SYNCNORM_CAF_LEGACY
    system_ = &system;
#endif
  }

#if SYNCNORM_CAF_LEGACY
  void exec_later(caf::resumable* job) override {
    take_or_pass_on(job);
  }
#else
  void schedule(caf::resumable* job) override {
    pass_on(job);
  }

  void delay(caf::resumable* job) override {
    take_or_pass_on(job);
  }

  void start() override {}

  void stop() override {}
#endif

  /// Runs the actor that was woken, if one was, until its mailbox is empty.
  void run() {
    running_ = true;
    if (!job_)
      return;
    // Enough for a round of many participants; more goes to CAF's workers.
    constexpr std::size_t max_messages = 1000;
    if (job_->resume(this, max_messages) == caf::resumable::resume_later)
      pass_on(job_);
    else
      caf::intrusive_ptr_release(job_);
  }

private:
  void take_or_pass_on(caf::resumable* job) {
    if (running_ || job_)
      pass_on(job);
    else
      job_ = job;
  }

  void pass_on(caf::resumable* job) {
#if SYNCNORM_CAF_LEGACY
    if (worker_ != nullptr)
      worker_->exec_later(job);
    else
      home_->scheduler().enqueue(job);
#else
    (worker_ != nullptr ? *worker_ : home_->scheduler()).schedule(job);
#endif
  }

  caf::actor_system* home_;
  worker_type* worker_;
  caf::resumable* job_ = nullptr;
  bool running_ = false;
};

/// Sends to an actor of this process from an ordinary thread. If the actor was
/// idle, it runs here and now, on the calling thread, as it would on a worker
/// of CAF's: no other thread has to wake up first, which takes tens of
/// microseconds. CAF ensures that an actor never runs in two places.
template <class Handle, class... Ts>
void send_and_lend(caf::actor_system& system, const Handle& to, Ts&&... xs) {
  logger_guard guard;
  lent_thread here{system};
  auto* receiver = caf::actor_cast<caf::abstract_actor*>(to);
  receiver->enqueue(
      make_element(nullptr, caf::make_message_id(), std::forward<Ts>(xs)...),
      &here);
  here.run();
}

} // namespace syncnorm::detail
