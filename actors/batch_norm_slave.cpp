#include "batch_norm_slave.hpp"

#include "pass_arguments.hpp"
#include "run_woken_here.hpp"
#include "with_layer.hpp"

#include "syncnorm/detail/answer_if_lost.hpp"
#include "syncnorm/detail/is_distant.hpp"
#include "syncnorm/detail/round_text.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/sync_master.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace syncnorm::detail {

namespace {

std::vector<const_tensor_view> views_of(const std::vector<shared_tensor>& xs) {
  std::vector<const_tensor_view> result;
  result.reserve(xs.size());
  for (const auto& x : xs)
    result.push_back(x.view());
  return result;
}

} // namespace

caf::error to_answer(const std::exception& reason) {
  if (const auto* x = dynamic_cast<const error*>(&reason))
    return to_caf_error(*x);
  return make_error(errc::participant_failed, reason.what());
}

batch_norm_slave::batch_norm_slave(caf::actor_config& config,
                                   std::shared_ptr<batch_norm_replica> replica,
                                   slave_role role)
    : super{config},
      replica_{std::move(replica)},
      role_{std::move(role)} {}

const char* batch_norm_slave::name() const {
  return "syncnorm.slave";
}

batch_norm_slave::behavior_type batch_norm_slave::make_behavior() {
  take_part();
  return {
      [this](forward_atom, shared_tensor& x) {
        auto promise = make_response_promise<shared_tensor, std::uint64_t>();
        std::vector<shared_tensor> xs(1);
        xs[0] = std::move(x);
        push(forward_job{std::move(xs), promise});
        return promise;
      },
      [this](forward_atom, shared_tensors& xs) {
        auto promise = make_response_promise<shared_tensors, std::uint64_t>();
        push(forward_job{std::move(xs.each), promise});
        return promise;
      },
      [this](backward_atom, std::uint64_t pass_id, shared_tensor& dy) {
        auto promise = make_response_promise<shared_tensor>();
        push(backward_job{pass_id, std::move(dy), promise});
        return promise;
      },
      [this](forget_atom, std::uint64_t pass_id) { return forget(pass_id); },
      [this](train_atom, bool on) { replica_->train(on); },
      [this](read_state_atom, const std::string& array) {
        return read_state(array);
      },
      [this](write_state_atom, const std::string& array,
             const double_array& values) { return write_state(array, values); },
      [this](zero_gradients_atom) { replica_->zero_gradients(); },
      [this](get_metrics_atom) { return metrics(); },
      [this](give_up_atom, const std::string& why) { give_up(why); },
  };
}

void batch_norm_slave::take_part() {
  if (on_device()) {
    ends_.emplace(this, role_.deadline,
                  [this](std::uint64_t work, const caf::error& reason) {
                    work_failed(work, reason);
                  });
    staging_ = std::make_shared<tensor_staging>();
  }
  host_only_ = is_distant(role_.master);
  if (role_.copy_id == 0)
    return role_.registered->put(true);
  register_slave(this, role_.master, role_.copy_id)
      .then(
          [this](const slave_ticket& ticket) {
            pipe_.emplace(role_.master, ticket);
            role_.registered->put(true);
          },
          [this](const caf::error& reason) {
            role_.registered->put(from_master(reason));
          });
}

void batch_norm_slave::on_exit() {
  auto reason = make_error(
      errc::participant_down,
      exited_text(fmt::format("layer {}: replica {}", replica_->options().name,
                              role_.copy_id),
                  fail_state()));
  if (current_)
    jobs_.push_front(std::exchange(current_, nullptr));
  for (auto& x : std::exchange(jobs_, {}))
    drop(*x, reason);
  for (auto& [number, asked] : std::exchange(questions_, {}))
    asked.deliver(reason);
  if (ends_) {
    ends_->end_from(0, reason);
    // Destroying them waits for the device, which no CAF worker may do.
    keep_until_done(replica_);
    keep_until_done(std::exchange(staging_, nullptr));
    ends_->close();
  }
  if (role_.copy_id == 0 && role_.master)
    end_master(reason);
  // A handle keeps this object alive.
  kept_.clear();
  used_tapes_.clear();
  done_ = nullptr;
  sent_ = {};
  role_.relays.reset();
  pipe_.reset();
  role_.registered->put(reason);
  replica_.reset();
  role_.ended->put(true);
}

/// How copy 0 has ended is the master's exit reason, for the others.
void batch_norm_slave::end_master(const caf::error& reason) {
  const auto& why = fail_state();
  auto in_order = why == caf::none || why == caf::exit_reason::normal
                  || why == caf::exit_reason::user_shutdown;
  detail::anon_send(
      caf::actor_cast<caf::actor>(role_.master),
      caf::exit_msg{role_.master.address(),
                    in_order ? caf::make_error(caf::exit_reason::user_shutdown)
                             : reason});
}

// -- passes -------------------------------------------------------------------

void batch_norm_slave::push(job x) {
  jobs_.push_back(std::make_shared<job>(std::move(x)));
  next();
}

void batch_norm_slave::next() {
  while (!current_ && !jobs_.empty())
    start_next();
  look_ahead();
}

void batch_norm_slave::start_next() {
  auto at = std::move(jobs_.front());
  jobs_.pop_front();
  auto others_wait =
      std::visit([this](const auto& x) { return joins_round(x); }, *at);
  try {
    std::visit([&](auto& x) { start(at, x); }, *at);
  } catch (const std::exception& x) {
    drop(*at, to_answer(x));
    if (others_wait)
      give_up(x.what());
  }
}

bool batch_norm_slave::joins_round(const forward_job&) const {
  return role_.master && replica_->exchanges();
}

bool batch_norm_slave::joins_round(const backward_job& x) const {
  auto i = kept_.find(x.pass_id);
  if (i != kept_.end())
    return role_.master && batch_norm_replica::exchanges(i->second.tape);
  // Where passes have ids and are exchanged, an unknown id stands for another:
  // the other copies may be at that pass, and wait.
  const auto& options = replica_->options();
  return role_.master && x.pass_id != 0 && !options.online && !options.frozen;
}

batch_norm_slave::forward_job* batch_norm_slave::next_forward() const {
  if (on_device() || jobs_.empty() || !replica_->exchanges())
    return nullptr;
  return std::get_if<forward_job>(jobs_.front().get());
}

void batch_norm_slave::look_ahead() {
  auto* x = next_forward();
  // The reply may have come, with this pass's x still in a cache.
  if (!current_ || x == nullptr || x->measured || !mailbox().empty())
    return;
  try {
    x->measured = measure(*x);
  } catch (const std::exception&) {
    // The pass is refused when its turn comes.
  }
}

void batch_norm_slave::start_ahead() {
  auto* x = next_forward();
  if (!current_ && x != nullptr && x->measured)
    start_next();
}

tensor_memory batch_norm_slave::make_output(const tensor_layout& layout) {
  return on_device() ? tensor_memory{layout, replica_->stream()}
                     : pool_.take(layout);
}

void batch_norm_slave::refuse(forward_job& x, const caf::error& reason) {
  if (x.before)
    replica_->unlearn(*x.before);
  std::visit([&](auto& promise) { promise.deliver(reason); }, x.promise);
}

void batch_norm_slave::refuse(backward_job& x, const caf::error& reason) {
  if (x.before)
    replica_->unlearn(*x.before);
  x.promise.deliver(reason);
}

void batch_norm_slave::drop(job& x, const caf::error& reason) {
  std::visit([&](auto& unfinished) { refuse(unfinished, reason); }, x);
  // Kernels of the pass may still run.
  std::visit(
      [&](auto& unfinished) { keep_until_done(std::move(unfinished.memory)); },
      x);
}

batch_norm_message batch_norm_slave::measure(const forward_job& x) {
  return replica_->measure(views_of(x.xs));
}

void batch_norm_slave::start(const job_ptr& at, forward_job& x) {
  auto alone = !joins_round(x);
  x.trains = replica_->is_training() && !replica_->options().online;
  if (on_device()) {
    pass_arguments{replica_->options()}.require_to_bring(views_of(x.xs));
    for (auto& one : x.xs)
      x.backs.push_back(bring_here(one));
  }
  // Before a kernel reads them.
  x.memory = hold(x);
  std::optional<batch_norm_message> message;
  if (alone)
    replica_->require_alone(views_of(x.xs));
  else
    message = x.measured ? std::exchange(x.measured, {}) : measure(x);
  x.ys.reserve(x.xs.size());
  for (const auto& one : x.xs)
    x.ys.push_back(make_output(one.view().layout()));
  x.memory = hold(x);
  if (alone) {
    remember(x.before);
    forward_alone(x);
    return finish(at);
  }
  replica_->add_update(*message);
  exchange(at, std::move(*message), [this, at](const batch_norm_reply& reply) {
    end_forward(at, reply);
  });
}

void batch_norm_slave::forward_alone(forward_job& x) {
  x.tapes = std::exchange(used_tapes_, {});
  x.tapes.resize(x.xs.size());
  for (std::size_t i = 0; i < x.xs.size(); ++i)
    x.tapes[i] = replica_->forward_alone(x.xs[i].view(), x.ys[i].view(),
                                         std::move(x.tapes[i]));
}

void batch_norm_slave::end_forward(const job_ptr& at,
                                   const batch_norm_reply& reply) {
  auto& x = std::get<forward_job>(*at);
  x.tapes = std::exchange(used_tapes_, {});
  x.tapes.resize(x.xs.size());
  remember(x.before);
  replica_->accept(reply, x.tapes);
  start_ahead();
  for (std::size_t i = 0; i < x.xs.size(); ++i)
    replica_->apply(x.tapes[i], x.xs[i].view(), x.ys[i].view());
  finish(at);
}

void batch_norm_slave::finish(const job_ptr& at) {
  auto& x = std::get<forward_job>(*at);
  if (!on_device())
    return answer(x);
  // The memory of each copy to the host is kept, even if the next copy fails.
  for (std::size_t i = 0; i < x.ys.size(); ++i)
    x.memory = send_back(x.ys[i], x.backs[i], x.memory);
  when_done(x.memory, [this, at](const caf::error& reason) {
    auto& mine = std::get<forward_job>(*at);
    if (reason != caf::none)
      refuse(mine, reason);
    else
      answer(mine);
  });
}

void batch_norm_slave::answer(forward_job& x) {
  auto pass_id = x.trains ? last_pass_id_ + 1 : 0;
  for (std::size_t i = 0; x.trains && i < x.xs.size(); ++i)
    kept_.emplace(++last_pass_id_,
                  kept{std::move(x.xs[i]), std::move(x.tapes[i])});
  if (!x.trains && !on_device())
    used_tapes_ = std::move(x.tapes);
  x.xs.clear();
  if (auto* one = std::get_if<0>(&x.promise)) {
    one->deliver(answer_of(x, 0), pass_id);
    return;
  }
  shared_tensors ys;
  ys.each.reserve(x.ys.size());
  for (std::size_t i = 0; i < x.ys.size(); ++i)
    ys.each.push_back(answer_of(x, i));
  std::get<1>(x.promise).deliver(std::move(ys), pass_id);
}

void batch_norm_slave::start(const job_ptr& at, backward_job& x) {
  auto i = kept_.find(x.pass_id);
  if (i == kept_.end())
    throw error{errc::invalid_argument,
                fmt::format("layer {}: backward: pass id: expected that of a "
                            "forward pass in training, not yet used or "
                            "forgotten, got {}",
                            replica_->options().name, x.pass_id)};
  const auto& pass = i->second;
  if (on_device())
    pass_arguments{replica_->options()}.require_to_bring(x.dy.view(),
                                                         pass.x.view());
  x.back = bring_here(x.dy);
  // Not the layout of dy, which is checked below.
  auto dx = make_output(pass.x.view().layout());
  x.memory = hold({pass.x, x.dy, dx.share()});
  if (!batch_norm_replica::exchanges(pass.tape)) {
    remember(x.before);
    replica_->backward_alone(x.dy.view(), pass.x.view(), pass.tape, dx.view());
    kept_.erase(i);
    return finish_backward(at, dx);
  }
  auto message = replica_->begin_backward(x.dy.view(), pass.x.view(), pass.tape,
                                          dx.view());
  // From here on, nobody can forget the pass.
  x.pass = std::move(kept_.extract(i).mapped());
  exchange(at, std::move(message), [this, at, dx](const batch_norm_reply& r) {
    auto& self = std::get<backward_job>(*at);
    remember(self.before);
    replica_->end_backward(r, self.dy.view(), self.pass.x.view(),
                           self.pass.tape, dx.view());
    finish_backward(at, dx);
  });
}

void batch_norm_slave::finish_backward(const job_ptr& at,
                                       const tensor_memory& dx) {
  auto& x = std::get<backward_job>(*at);
  x.memory = send_back(dx, x.back, x.memory);
  when_done(x.memory, [this, at, dx](const caf::error& reason) {
    auto& mine = std::get<backward_job>(*at);
    if (reason != caf::none)
      refuse(mine, reason);
    else
      mine.promise.deliver(answer_of(dx, mine.back));
  });
}

} // namespace syncnorm::detail
