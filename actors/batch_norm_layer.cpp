#include "syncnorm/batch_norm_layer.hpp"

#include "layer_kind.hpp"
#include "pass_arguments.hpp"
#include "with_layer.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace syncnorm {

namespace {

/// The stream of a copy of a layer on `where`: the given one, or else the
/// default stream of a CUDA device, in the layer's runtime.
device_stream stream_for_clone(const batch_norm_options& options,
                               const device& where, device_stream given) {
  if (given || where.type == device_type::cpu)
    return given;
  auto& runtime = options.stream ? options.stream.runtime() : cuda_runtime();
  return device_stream::borrow(runtime, where, nullptr);
}

} // namespace

batch_norm_layer::batch_norm_layer(caf::actor_system& system,
                                   batch_norm_options options)
    : system_{&system},
      replica_{std::move(options)} {}

batch_norm_layer&
batch_norm_layer::operator=(batch_norm_layer&& other) noexcept {
  if (this == &other)
    return *this;
  system_ = other.system_;
  replica_ = std::move(other.replica_);
  may_stand_alone_ = other.may_stand_alone_;
  users_ = std::move(other.users_);
  participant_ = std::move(other.participant_);
  return *this;
}

batch_norm_layer batch_norm_layer::clone() const {
  const auto& options = replica_.options();
  return clone_to(options.where, options.stream);
}

batch_norm_layer batch_norm_layer::clone_to(const device& where,
                                            device_stream stream) const {
  auto options = replica_.options();
  options.stream = stream_for_clone(options, where, std::move(stream));
  options.where = where;
  batch_norm_layer result{*system_, std::move(options)};
  result.replica_.assign_state(replica_);
  result.may_stand_alone_ = false;
  return result;
}

std::string batch_norm_layer::kind() const {
  return detail::kind_of(replica_.options());
}

template <class F>
auto batch_norm_layer::alone(const char* call, F pass) {
  detail::one_user::use here{users_};
  if (!here)
    throw error{errc::invalid_argument,
                fmt::format("layer {}: {}: another thread is in a pass of this "
                            "copy: one thread uses a copy at a time",
                            replica_.options().name, call)};
  return pass();
}

// -- replication --------------------------------------------------------------

void batch_norm_layer::on_data_parallel_replicate(callback_context& context,
                                                  std::int64_t copy_id) {
  const auto& options = replica_.options();
  if (participant_)
    throw error{
        errc::duplicate_identifier,
        fmt::format("layer {}: the replication callback of copy {} runs on a "
                    "module that is copy {} already; release it first",
                    options.name, copy_id, participant_->copy_id())};
  participant_ = batch_norm_participant::replicate(
      *system_, make_sync_options(options), context, copy_id);
}

void batch_norm_layer::on_data_parallel_release() {
  alone("release", [this] {
    if (!participant_)
      return;
    participant_.reset();
    may_stand_alone_ = false;
  });
}

void batch_norm_layer::on_data_parallel_failure(const std::string& why) {
  if (participant_)
    participant_->give_up(why);
}

batch_norm_participant*
batch_norm_layer::require_participant(const char* call) {
  if (participant_)
    return &*participant_;
  if (may_stand_alone_)
    return nullptr;
  throw error{errc::unregistered,
              fmt::format("layer {}: {}: this copy was not told whose copy it "
                          "is: run execute_replication_callbacks first",
                          replica_.options().name, call)};
}

// -- passes -------------------------------------------------------------------

template <class F>
auto batch_norm_layer::prepare_or_give_up(batch_norm_participant& with,
                                          F prepare) {
  try {
    return prepare();
  } catch (const std::exception& x) {
    with.give_up(x.what());
    throw;
  }
}

template <class F>
auto batch_norm_layer::learn(F pass) {
  // On a CPU, a pass learns only when nothing can fail any more.
  if (replica_.options().where.type == device_type::cpu)
    return pass();
  auto before = replica_.learned();
  try {
    return pass();
  } catch (...) {
    replica_.unlearn(before);
    throw;
  }
}

batch_norm_reply batch_norm_layer::run_round(batch_norm_participant& with,
                                             batch_norm_message message) {
  try {
    return with.run(std::move(message));
  } catch (const error& x) {
    throw error{x.code(),
                detail::with_layer(replica_.options().name, x.what())};
  }
}

batch_norm_tape batch_norm_layer::forward(const const_tensor_view& x,
                                          const tensor_view& y) {
  return alone("forward", [&] { return run_forward(x, y); });
}

void batch_norm_layer::backward(const const_tensor_view& dy,
                                const const_tensor_view& x,
                                const batch_norm_tape& tape,
                                const tensor_view& dx) {
  alone("backward", [&] { run_backward(dy, x, tape, dx); });
}

batch_norm_tape batch_norm_layer::run_forward(const const_tensor_view& x,
                                              const tensor_view& y) {
  auto* with = replica_.exchanges() ? require_participant("forward") : nullptr;
  if (with == nullptr)
    return learn([&] { return replica_.forward_alone(x, y); });
  auto message =
      prepare_or_give_up(*with, [&] { return replica_.begin_forward(x, y); });
  auto reply = run_round(*with, std::move(message));
  return prepare_or_give_up(*with, [&] {
    return learn([&] { return replica_.end_forward(reply, x, y); });
  });
}

bool batch_norm_layer::joins_round(const batch_norm_tape& tape) const {
  if (batch_norm_replica::exchanges(tape))
    return true;
  // An invalid tape stands for another: the other copies may be at that one,
  // and wait.
  return participant_ && replica_.exchanges() && !replica_.options().online
         && !detail::pass_arguments{replica_.options()}.is_readable(tape);
}

void batch_norm_layer::run_backward(const const_tensor_view& dy,
                                    const const_tensor_view& x,
                                    const batch_norm_tape& tape,
                                    const tensor_view& dx) {
  auto* with = joins_round(tape) ? require_participant("backward") : nullptr;
  if (with == nullptr)
    return learn([&] { replica_.backward_alone(dy, x, tape, dx); });
  auto message = prepare_or_give_up(
      *with, [&] { return replica_.begin_backward(dy, x, tape, dx); });
  auto reply = run_round(*with, std::move(message));
  prepare_or_give_up(*with, [&] {
    learn([&] { replica_.end_backward(reply, dy, x, tape, dx); });
  });
}

// -- what it cost -------------------------------------------------------------

std::uint64_t batch_norm_layer::messages_sent() const noexcept {
  return participant_ ? participant_->messages_sent() : 0;
}

std::chrono::nanoseconds batch_norm_layer::waited() const noexcept {
  return participant_ ? participant_->waited() : std::chrono::nanoseconds{0};
}

} // namespace syncnorm
