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
      state_file_{std::move(state_file)} {}

void supervisor::on_exit() {
  stages_.clear();
}

supervisor::behavior_type supervisor::make_behavior() {
  syncnorm::execute_replication_callbacks(stages_);
  return {
      [this](crew_atom) { return current(); },
      [this](recover_atom) { return recover(); },
      [this](dismiss_atom) { return dismiss(); },
  };
}

crew supervisor::current() const {
  crew result;
  for (const auto& stage : stages_)
    result.slaves.push_back(stage->slave());
  return result;
}

// begin: recover
crew supervisor::recover() {
  // Ends the remaining slaves, and waits until each has given its state back,
  // which holds exactly what that slave has answered. All slaves have answered
  // what came out: the one that has seen least has seen that, and nothing that
  // will be fed again.
  syncnorm::release_replicas(stages_);
  auto& least = (*std::ranges::min_element(stages_, {}, [](auto& stage) {
                  return batches_seen(stage->replica());
                }))->replica();
  for (auto& stage : stages_)
    copy_state(least, stage->replica());
  // Starts a new master, and new slaves that register with it.
  syncnorm::execute_replication_callbacks(stages_);
  return current();
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
