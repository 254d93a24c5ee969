#include "syncnorm/batch_norm_participant.hpp"

#include "stream_waiter.hpp"
#include "with_layer.hpp"

#include "syncnorm/config.hpp"
#include "syncnorm/detail/host_copy.hpp"
#include "syncnorm/detail/is_distant.hpp"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <tuple>
#include <utility>

namespace syncnorm {

namespace {

template <class T>
T value_or_throw(caf::expected<T> x) {
  if (x)
    return std::move(*x);
  auto code = code_of(x.error());
  throw error{code.value_or(errc::master_down), text_of(x.error())};
}

caf::timespan deadline_of(std::optional<caf::timespan> given,
                          const caf::actor_system& system) {
  return given ? *given : read_defaults(system.config()).deadline;
}

/// The part of a copy other than copy 0, registered with its relay or master.
/// Errors name the layer.
batch_norm_participant join(caf::actor_system& system,
                            const sync_options& options,
                            const batch_norm_master_actor& master,
                            std::int64_t copy_id) {
  try {
    return {system, master, copy_id, options.deadline};
  } catch (const error& x) {
    throw error{x.code(), detail::with_layer(options.layer, x.what())};
  }
}

} // namespace

batch_norm_participant::batch_norm_participant(caf::actor_system& system,
                                               sync_options options,
                                               std::int64_t copies)
    : system_{&system},
      deadline_{deadline_of(options.deadline, system)} {
  options.policy = options.policy.value_or(failure_policy::fail_round);
  options = resolve(std::move(options), system.config());
  auto reduction = batch_norm_reduction(options, copies);
  detail::check_participants(options, reduction.participants);
  if (copies == 1)
    return;
  auto master = std::make_unique<owner::element_type>(
      system, std::move(options), std::move(reduction));
  master_ = master->handle();
  role_ = std::move(master);
}

batch_norm_participant::batch_norm_participant(
    caf::actor_system& system, const batch_norm_master_actor& master,
    std::int64_t copy_id, std::optional<caf::timespan> deadline)
    : system_{&system},
      deadline_{deadline_of(deadline, system)},
      copy_id_{copy_id},
      host_only_{detail::is_distant(master)},
      master_{master},
      role_{value_or_throw(
          register_slave_thread<batch_norm_message, batch_norm_reply>(
              system, master, copy_id))} {}

batch_norm_participant batch_norm_participant::replicate(
    caf::actor_system& system, const sync_options& options,
    callback_context& context, std::int64_t copy_id) {
  using relays_ptr = std::shared_ptr<batch_norm_relays>;
  if (copy_id != 0) {
    const auto& relays = *context.published<relays_ptr>();
    auto result = join(system, options, relays.at(copy_id), copy_id);
    result.master_ = relays.master();
    return result;
  }
  batch_norm_participant result{system, options, context.copies()};
  result.relays_ = spawn_batch_norm_relays(system, result.master_, options,
                                           context.copies());
  context.publish(result.relays_);
  return result;
}

batch_norm_participant::batch_norm_participant(
    batch_norm_participant&&) noexcept = default;

batch_norm_participant&
batch_norm_participant::operator=(batch_norm_participant&& other) noexcept {
  // The replaced members end in the order in which they would be destroyed.
  if (this != &other) {
    std::destroy_at(this);
    std::construct_at(this, std::move(other));
  }
  return *this;
}

batch_norm_participant::~batch_norm_participant() = default;

batch_norm_reply batch_norm_participant::run(batch_norm_message message) {
  begin(std::move(message));
  return end();
}

void batch_norm_participant::require_part() const {
  if (!master_ && !std::holds_alternative<alone>(role_))
    throw error{errc::invalid_argument,
                fmt::format("batch_norm_participant: copy {} was moved from",
                            copy_id_)};
}

void batch_norm_participant::begin(batch_norm_message message) {
  require_part();
  if (outstanding_)
    throw error{errc::invalid_argument,
                fmt::format("batch_norm_participant: copy {} begins a round "
                            "before it has the reply of the last one",
                            copy_id_)};
  if (host_only_)
    message = to_host(std::move(message));
  outstanding_ = message;
  if (!std::holds_alternative<alone>(role_))
    send(std::move(message));
}

batch_norm_reply batch_norm_participant::end() {
  require_part();
  if (!outstanding_)
    throw error{errc::invalid_argument,
                fmt::format("batch_norm_participant: copy {} ends a round that "
                            "it has not begun",
                            copy_id_)};
  auto message = *std::exchange(outstanding_, std::nullopt);
  if (std::holds_alternative<alone>(role_))
    return merge_round(std::move(message));
  auto reply = receive();
  if (!reply.resend)
    return reply;
  host_only_ = true;
  send(to_host(std::move(message)));
  return receive();
}

void batch_norm_participant::send(batch_norm_message message) {
  // The master may do its work on the thread that sends.
  auto begin = std::chrono::steady_clock::now();
  if (auto* slave = std::get_if<pipe>(&role_))
    std::ignore = slave->run_slave_async(std::move(message));
  else
    std::ignore = std::get<owner>(role_)->send_master(std::move(message));
  waited_ += std::chrono::steady_clock::now() - begin;
  std::atomic_ref{messages_sent_}.fetch_add(1, std::memory_order_release);
}

batch_norm_reply batch_norm_participant::receive() {
  auto begin = std::chrono::steady_clock::now();
  auto* slave = std::get_if<pipe>(&role_);
  auto reply = slave != nullptr ? slave->await_reply()
                                : std::get<owner>(role_)->await_reply();
  waited_ += std::chrono::steady_clock::now() - begin;
  return value_or_throw(std::move(reply));
}

batch_norm_message batch_norm_participant::to_host(batch_norm_message message) {
  if (!message.values.on_device())
    return message;
  try {
    if (!watch_)
      watch_ = std::make_unique<detail::stream_watch>(*system_);
    detail::host_message copy{std::move(message), std::exchange(pinned_, {})};
    watch_->wait(copy.work(), deadline_);
    return copy.finish(pinned_);
  } catch (const error& x) {
    give_up(x.what());
    throw;
  }
}

void batch_norm_participant::give_up(std::string why) {
  if (auto* slave = std::get_if<pipe>(&role_))
    std::ignore = slave->give_up(std::move(why));
  else if (auto* master = std::get_if<owner>(&role_); master && *master)
    (*master)->give_up(std::move(why));
}

std::int64_t batch_norm_participant::copy_id() const noexcept {
  return copy_id_;
}

std::chrono::nanoseconds batch_norm_participant::waited() const noexcept {
  return waited_;
}

std::uint64_t batch_norm_participant::messages_sent() const noexcept {
  return std::atomic_ref{messages_sent_}.load(std::memory_order_acquire);
}

const batch_norm_master_actor& batch_norm_participant::master() const noexcept {
  return master_;
}

} // namespace syncnorm
