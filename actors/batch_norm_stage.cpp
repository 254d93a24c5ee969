#include "syncnorm/batch_norm_stage.hpp"

#include "batch_norm_slave.hpp"
#include "layer_kind.hpp"

#include "syncnorm/batch_norm_master.hpp"
#include "syncnorm/config.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <tuple>
#include <utility>

namespace syncnorm {

namespace {

[[noreturn]] void refuse(const std::string& layer, errc code,
                         const std::string& text) {
  throw error{code, fmt::format("layer {}: {}", layer, text)};
}

/// On a CUDA device with a stream of its own, unless one is given.
batch_norm_options with_stream(batch_norm_options options) {
  if (options.where.type != device_type::cpu && !options.stream)
    options.stream = device_stream::make(cuda_runtime(), options.where);
  return options;
}

} // namespace

batch_norm_stage::batch_norm_stage(caf::actor_system& system,
                                   batch_norm_options options)
    : system_{&system},
      replica_{std::make_shared<batch_norm_replica>(
          with_stream(std::move(options)))} {}

batch_norm_stage::~batch_norm_stage() {
  on_data_parallel_release();
}

batch_norm_stage batch_norm_stage::clone() const {
  return clone_to(replica_->options().where);
}

batch_norm_stage batch_norm_stage::clone_to(const device& where) const {
  auto options = replica().options();
  auto old = std::exchange(options.stream, {});
  options.where = where;
  if (old && where.type != device_type::cpu)
    options.stream = device_stream::make(old.runtime(), where);
  batch_norm_stage result{*system_, std::move(options)};
  result.replica_->assign_state(*replica_);
  return result;
}

std::string batch_norm_stage::kind() const {
  return detail::kind_of(replica_->options());
}

batch_norm_replica& batch_norm_stage::replica() {
  std::ignore = std::as_const(*this).replica();
  return *replica_;
}

const batch_norm_replica& batch_norm_stage::replica() const {
  if (slave_)
    refuse(replica_->options().name, errc::invalid_argument,
           "its slave actor has the state until it is released");
  return *replica_;
}

const batch_norm_slave_actor& batch_norm_stage::slave() const {
  if (!slave_)
    refuse(replica_->options().name, errc::unregistered,
           "this copy was not told whose copy it is: run "
           "execute_replication_callbacks first");
  return slave_;
}

void batch_norm_stage::on_data_parallel_replicate(callback_context& context,
                                                  std::int64_t copy_id) {
  const auto& options = replica_->options();
  if (slave_)
    refuse(options.name, errc::duplicate_identifier,
           fmt::format("the replication callback of copy {} runs on a module "
                       "that is replicated already; release it first",
                       copy_id));
  detail::slave_role role;
  role.copy_id = copy_id;
  auto resolved = resolve(make_sync_options(options), system_->config());
  role.deadline = *resolved.deadline;
  using relays_ptr = std::shared_ptr<batch_norm_relays>;
  if (copy_id != 0)
    role.master = context.published<relays_ptr>()->at(copy_id);
  else if (context.copies() > 1)
    role.master = spawn_batch_norm_master(*system_, resolved, context.copies());
  auto registered = std::make_shared<future_result<bool>>();
  auto ended = std::make_shared<future_result<bool>>();
  role.registered = std::make_shared<future_writer<bool>>(registered);
  role.ended = std::make_shared<future_writer<bool>>(ended);
  if (copy_id == 0) {
    role.relays = spawn_batch_norm_relays(*system_, role.master, resolved,
                                          context.copies());
    context.publish(role.relays);
  }
  {
    detail::logger_guard guard;
    slave_ =
        system_->spawn<detail::batch_norm_slave>(replica_, std::move(role));
  }
  ended_ = std::move(ended);
  auto answer = registered->get();
  if (answer)
    return;
  on_data_parallel_release();
  throw error{code_of(answer.error()).value_or(errc::master_down),
              text_of(answer.error())};
}

void batch_norm_stage::on_data_parallel_release() {
  if (!slave_)
    return;
  caf::anon_send_exit(slave_, caf::exit_reason::user_shutdown);
  slave_ = nullptr;
  std::ignore = std::exchange(ended_, nullptr)->get();
}

void batch_norm_stage::on_data_parallel_failure(const std::string& why) {
  if (slave_)
    detail::anon_send(slave_, give_up_atom_v, why);
}

} // namespace syncnorm
