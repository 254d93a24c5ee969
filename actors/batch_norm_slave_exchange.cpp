// How a slave actor takes part in a round, and what it does with the answer.

#include "batch_norm_slave.hpp"

#include "run_woken_here.hpp"
#include "with_layer.hpp"

#include "syncnorm/detail/answer_if_lost.hpp"
#include "syncnorm/sync_master.hpp"

#include <exception>
#include <utility>

namespace syncnorm::detail {

void batch_norm_slave::exchange(const job_ptr& at, batch_norm_message message,
                                on_reply done) {
  if (!role_.master)
    return done(merge_round(std::move(message)));
  current_ = at;
  sent_ = std::move(message);
  done_ = std::move(done);
  try {
    contribute();
  } catch (const std::exception&) {
    current_ = nullptr;
    throw;
  }
}

void batch_norm_slave::contribute() {
  if (host_only_ && sent_.values.on_device())
    contribute_from_host();
  else
    contribute(sent_);
}

void batch_norm_slave::contribute(const batch_norm_message& message) {
  auto taken = [this](const batch_norm_reply& reply) { go_on(reply); };
  auto failed = [this](const caf::error& reason) { stop(reason); };
  run_woken_here here{this};
  if (role_.copy_id != 0)
    return pipe_->run_slave(this, message).then(taken, failed);
  run_master(this, role_.master, message).then(taken, failed);
}

void batch_norm_slave::go_on(const batch_norm_reply& reply) {
  if (overtaken_ != caf::none)
    return stop(std::exchange(overtaken_, {}));
  if (!reply.resend) {
    // Another pass may begin before this one is done.
    auto done = std::exchange(done_, nullptr);
    sent_ = {};
    return leave_exchange([&] { done(reply); });
  }
  host_only_ = true;
  try {
    contribute();
  } catch (const std::exception&) {
    leave_exchange([] { throw; });
  }
}

void batch_norm_slave::stop(const caf::error& reason) {
  done_ = nullptr;
  sent_ = {};
  overtaken_ = {};
  if (auto mine = std::exchange(current_, nullptr))
    drop(*mine, from_master(reason));
  next();
}

template <class F>
void batch_norm_slave::leave_exchange(F f) {
  auto mine = std::exchange(current_, nullptr);
  try {
    f();
  } catch (const std::exception& x) {
    drop(*mine, to_answer(x));
    give_up(x.what());
  }
  next();
}

caf::error batch_norm_slave::from_master(const caf::error& reason) const {
  auto code = code_of(reason);
  if (code.value_or(errc::master_down) != errc::master_down)
    return reason;
  auto why = text_of(code ? reason : master_is_down(role_.copy_id, reason));
  return make_error(errc::master_down,
                    with_layer(replica_->options().name, why));
}

caf::result<sync_metrics> batch_norm_slave::metrics() {
  if (!role_.master)
    return sync_metrics{};
  auto promise = make_response_promise<sync_metrics>();
  auto number = ++last_question_;
  questions_.emplace(number, promise);
  // Not delegated: a master on another node may be lost.
  read_metrics(this, role_.master)
      .then([this, number](
                sync_metrics& x) { answer_question(number, std::move(x)); },
            [this, number](const caf::error& x) {
              answer_question(number, from_master(x));
            });
  return promise;
}

template <class T>
void batch_norm_slave::answer_question(std::uint64_t number, T&& x) {
  if (auto asked = questions_.extract(number))
    asked.mapped().deliver(std::forward<T>(x));
}

void batch_norm_slave::give_up(const std::string& why) {
  if (pipe_)
    pipe_->give_up(this, why);
  else if (role_.master)
    detail::send(this, role_.master, give_up_atom_v, round_tag{}, why);
}

} // namespace syncnorm::detail
