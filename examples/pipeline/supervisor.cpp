#include "supervisor.hpp"

#include "state_file.hpp"

#include <syncnorm/replicate.hpp>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>
#include <variant>

namespace pipeline {

namespace {

std::int64_t batches_seen(syncnorm::batch_norm_replica& replica) {
  for (const auto& array : replica.state())
    if (array.name == "num_batches_tracked")
      return std::get<std::span<std::int64_t>>(array.values)[0];
  return 0;
}

void copy_state(syncnorm::batch_norm_replica& from,
                syncnorm::batch_norm_replica& to) {
  auto source = from.state();
  auto target = to.state();
  for (std::size_t i = 0; i < target.size(); ++i)
    std::visit(
        [&](auto values) {
          std::ranges::copy(std::get<decltype(values)>(source[i].values),
                            values.begin());
        },
        target[i].values);
}

/// Normalizes `x` with the statistics that have it already, as the slaves did
/// whose answers were lost.
syncnorm::shared_tensor
normalize_again(const syncnorm::batch_norm_replica& with,
                const syncnorm::shared_tensor& x) {
  // Where x lies. Online statistics are in the state; those of a batch are made
  // again. The copy is thrown away with what it learns.
  auto options = with.options();
  options.where = x.view().where();
  options.stream = {};
  syncnorm::batch_norm_replica replica{options};
  replica.assign_state(with);
  if (replica.options().online)
    replica.train(false);
  syncnorm::tensor_memory y{x.view().layout()};
  (void) replica.forward_alone(x.view(), y.view());
  return y.share();
}

} // namespace

stages make_stages(caf::actor_system& system,
                   syncnorm::batch_norm_options options,
                   const std::vector<syncnorm::device>& devices, bool training,
                   const std::string& state_file) {
  stages result;
  for (const auto& where : devices) {
    options.where = where;
    result.push_back(
        std::make_unique<syncnorm::batch_norm_stage>(system, options));
    auto& replica = result.back()->replica();
    replica.train(training);
    if (!state_file.empty() && std::filesystem::exists(state_file))
      load_state(state_file, replica);
  }
  return result;
}

supervisor::supervisor(caf::actor_config& config, stages owned,
                       std::string state_file)
    : supervisor_actor::base{config},
      stages_{std::move(owned)},
      state_file_{std::move(state_file)},
      on_cpus_{
          std::ranges::all_of(stages_,
                              [](auto& stage) {
                                return stage->replica().options().where.type
                                       == syncnorm::device_type::cpu;
                              })},
      batches_before_{batches_seen(stages_[0]->replica())} {}

void supervisor::on_exit() {
  stages_.clear();
}

supervisor::behavior_type supervisor::make_behavior() {
  syncnorm::execute_replication_callbacks(stages_);
  return {
      [this](crew_atom) { return current(); },
      [this](recover_atom, const batch& next) { return recover(next); },
      [this](dismiss_atom) { return dismiss(); },
  };
}

crew supervisor::current() const {
  crew result;
  for (const auto& stage : stages_)
    result.slaves.push_back(stage->slave());
  // A device answers one batch at a time, and later than it counts it.
  if (!on_cpus_)
    result.together = result.groups = 1;
  return result;
}

// begin: recover
caf::result<crew> supervisor::recover(const batch& next) {
  // Ends the slaves that are left, and waits until each has given its state
  // back. What came out was answered by all, so counted by all: the one that
  // has seen least has seen that, and nothing that will be fed again.
  syncnorm::release_replicas(stages_);
  auto& least = (*std::ranges::min_element(stages_, {}, [](auto& stage) {
                  return batches_seen(stage->replica());
                }))->replica();
  for (auto& stage : stages_)
    copy_state(least, stage->replica());
  // On a device a batch can be counted and its answer be lost.
  std::optional<syncnorm::shared_tensor> redone;
  auto seen = static_cast<std::uint64_t>(batches_seen(least) - batches_before_);
  if (seen > next.number)
    redone = normalize_again(least, next.parts[0]);
  // A new master, new slaves, registered with it.
  syncnorm::execute_replication_callbacks(stages_);
  auto result = current();
  result.redone = std::move(redone);
  return result;
}
// end: recover

std::string supervisor::dismiss() {
  syncnorm::release_replicas(stages_);
  if (state_file_.empty())
    return {};
  try {
    pipeline::save_state(state_file_, stages_[0]->replica());
    return {};
  } catch (const std::exception& x) {
    return x.what();
  }
}

} // namespace pipeline
