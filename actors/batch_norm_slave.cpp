#include "syncnorm/detail/batch_norm_slave.hpp"

#include "syncnorm/error.hpp"
#include "syncnorm/sync_master.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <type_traits>
#include <utility>

namespace syncnorm::detail {

namespace {

caf::error to_answer(const std::exception& reason) {
  if (const auto* x = dynamic_cast<const error*>(&reason))
    return to_caf_error(*x);
  return make_error(errc::participant_failed, reason.what());
}

/// The arrays of the state and, as `weight.grad`, the gradients.
std::vector<named_array> all_arrays(batch_norm_replica& replica) {
  auto result = replica.state();
  for (auto& gradient : replica.gradients())
    result.push_back({gradient.name + ".grad", gradient.values});
  return result;
}

/// Whether a float64 can be a counter of the state.
bool is_counter(double x) {
  return x >= 0 && x <= 0x1p53 && x == std::floor(x);
}

} // namespace

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
        push(forward_job{std::move(x), promise});
        return promise;
      },
      [this](backward_atom, std::uint64_t ticket, shared_tensor& dy) {
        auto promise = make_response_promise<shared_tensor>();
        push(backward_job{ticket, std::move(dy), promise});
        return promise;
      },
      [this](forget_atom, std::uint64_t ticket) { return forget(ticket); },
      [this](train_atom, bool on) { replica_->train(on); },
      [this](read_state_atom, const std::string& array) {
        return read_state(array);
      },
      [this](write_state_atom, const std::string& array,
             const double_array& values) { return write_state(array, values); },
      [this](give_up_atom, const std::string& why) { give_up(why); },
  };
}

void batch_norm_slave::take_part() {
  if (role_.copy_id == 0)
    return role_.registered->put(true);
  register_slave(this, role_.master, role_.copy_id)
      .then(
          [this](const slave_ticket& ticket) {
            pipe_.emplace(role_.master, ticket);
            role_.registered->put(true);
          },
          [this](caf::error& reason) {
            role_.registered->put(std::move(reason));
          });
}

void batch_norm_slave::on_exit() {
  auto reason =
      make_error(errc::participant_down,
                 fmt::format("layer {}: replica {} has exited",
                             replica_->options().name, role_.copy_id));
  if (current_)
    jobs_.push_front(std::exchange(current_, nullptr));
  for (auto& x : jobs_)
    std::visit([&](auto& unfinished) { unfinished.promise.deliver(reason); },
               *x);
  jobs_.clear();
  if (role_.copy_id == 0 && role_.master)
    caf::anon_send_exit(role_.master, caf::exit_reason::user_shutdown);
  pipe_.reset();
  role_.registered->put(reason);
  replica_.reset();
  role_.ended->put(true);
}

// -- passes -------------------------------------------------------------------

void batch_norm_slave::push(job x) {
  jobs_.push_back(std::make_shared<job>(std::move(x)));
  next();
}

void batch_norm_slave::next() {
  while (!current_ && !jobs_.empty()) {
    auto at = std::move(jobs_.front());
    jobs_.pop_front();
    try {
      std::visit([&](auto& x) { start(at, x); }, *at);
    } catch (const std::exception& x) {
      refuse(*at, x);
    }
  }
}

void batch_norm_slave::refuse(job& x, const std::exception& reason) {
  std::visit([&](auto& y) { y.promise.deliver(to_answer(reason)); }, x);
  give_up(reason.what());
}

void batch_norm_slave::start(const job_ptr& at, forward_job& x) {
  tensor_memory y{x.x.view().layout()};
  if (!replica_->exchanges())
    return finish(x, y, replica_->forward_alone(x.x.view(), y.view()));
  exchange(at, replica_->begin_forward(x.x.view(), y.view()),
           [this, at, y](const batch_norm_reply& reply) {
             auto& self = std::get<forward_job>(*at);
             finish(self, y,
                    replica_->end_forward(reply, self.x.view(), y.view()));
           });
}

void batch_norm_slave::finish(forward_job& x, const tensor_memory& y,
                              batch_norm_tape tape) {
  std::uint64_t ticket = 0;
  if (replica_->is_training() && !replica_->options().online) {
    ticket = ++last_ticket_;
    kept_.emplace(ticket, kept{std::move(x.x), std::move(tape)});
  }
  x.promise.deliver(y.share(), ticket);
}

void batch_norm_slave::start(const job_ptr& at, backward_job& x) {
  auto i = kept_.find(x.ticket);
  if (i == kept_.end())
    throw error{errc::invalid_argument,
                fmt::format("layer {}: backward: ticket: expected that of a "
                            "forward pass in training, got {}",
                            replica_->options().name, x.ticket)};
  tensor_memory dx{x.dy.view().layout()};
  const auto& pass = i->second;
  if (!batch_norm_replica::exchanges(pass.tape)) {
    replica_->backward_alone(pass.x.view(), x.dy.view(), pass.tape, dx.view());
    kept_.erase(i);
    x.promise.deliver(dx.share());
    return;
  }
  auto message = replica_->begin_backward(pass.x.view(), x.dy.view(), pass.tape,
                                          dx.view());
  exchange(at, std::move(message), [this, at, dx](const batch_norm_reply& r) {
    auto& self = std::get<backward_job>(*at);
    auto used = kept_.extract(self.ticket);
    const auto& [input, tape] = used.mapped();
    replica_->end_backward(r, input.view(), self.dy.view(), tape, dx.view());
    self.promise.deliver(dx.share());
  });
}

template <class Done>
void batch_norm_slave::exchange(const job_ptr& at, batch_norm_message message,
                                Done done) {
  if (!role_.master) {
    std::array messages{identified<batch_norm_message>{0, std::move(message)}};
    return done(merge_round(messages));
  }
  current_ = at;
  auto go_on = [this, done](const batch_norm_reply& reply) {
    auto mine = std::exchange(current_, nullptr);
    try {
      done(reply);
    } catch (const std::exception& x) {
      refuse(*mine, x);
    }
    next();
  };
  auto stop = [this](const caf::error& reason) {
    auto mine = std::exchange(current_, nullptr);
    std::visit([&](auto& x) { x.promise.deliver(reason); }, *mine);
    next();
  };
  if (role_.copy_id == 0)
    run_master(this, role_.master, std::move(message)).then(go_on, stop);
  else
    pipe_->run_slave(this, std::move(message)).then(go_on, stop);
}

void batch_norm_slave::give_up(const std::string& why) {
  if (pipe_)
    pipe_->give_up(this, why);
  else if (role_.master)
    detail::anon_send(role_.master, give_up_atom_v, round_tag{}, why);
}

// -- state --------------------------------------------------------------------

caf::result<double_array>
batch_norm_slave::read_state(const std::string& name) {
  for (const auto& x : all_arrays(*replica_))
    if (x.name == name)
      return std::visit(
          [](auto values) {
            return double_array{
                std::vector<double>(values.begin(), values.end())};
          },
          x.values);
  return make_error(
      errc::invalid_argument,
      fmt::format("layer {}: has no array {}", replica_->options().name, name));
}

caf::result<void> batch_norm_slave::write_state(const std::string& name,
                                                const double_array& values) {
  for (const auto& x : all_arrays(*replica_)) {
    if (x.name != name)
      continue;
    auto size = std::visit([](auto to) { return to.size(); }, x.values);
    if (values.size() != size)
      return make_error(errc::shape_mismatch,
                        fmt::format("layer {}: {}: expected {} elements, got "
                                    "{}",
                                    replica_->options().name, name, size,
                                    values.size()));
    if (std::holds_alternative<std::span<std::int64_t>>(x.values)
        && !std::ranges::all_of(values, is_counter))
      return make_error(errc::invalid_argument,
                        fmt::format("layer {}: {}: expected a whole number "
                                    "from 0 to 2^53, got {}",
                                    replica_->options().name, name, values[0]));
    std::visit(
        [&]<class T>(std::span<T> to) {
          for (std::size_t i = 0; i < size; ++i)
            to[i] = static_cast<T>(values[i]);
        },
        x.values);
    return caf::unit;
  }
  return make_error(
      errc::invalid_argument,
      fmt::format("layer {}: has no array {}", replica_->options().name, name));
}

caf::result<void> batch_norm_slave::forget(std::uint64_t ticket) {
  if (kept_.erase(ticket) != 0)
    return caf::unit;
  return make_error(errc::invalid_argument,
                    fmt::format("layer {}: forget: no pass has the ticket {}",
                                replica_->options().name, ticket));
}

} // namespace syncnorm::detail
