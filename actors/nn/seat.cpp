// The edge to CAF.

#include "actors/nn/seat.hpp"

#include "actors/nn/distant_copies.hpp"
#include "actors/nn/layer_check.hpp"
#include "actors/nn/layer_seat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace syncnorm::nn::detail {

namespace {

/// What copy 0 publishes in the context: the groups; the first copy of each
/// group makes its own.
using layer_groups = std::shared_ptr<std::vector<layer_group>>;

std::vector<layer_group> divide(std::int64_t copies, std::int64_t size) {
  std::vector<layer_group> result;
  auto step = size == 0 ? copies : size;
  for (std::int64_t first = 0; first < copies; first += step) {
    auto& group = result.emplace_back();
    group.first = first;
    group.last = std::min(first + step, copies);
  }
  return result;
}

std::string layer_name(const replication_scope& scope,
                       const callback_context& context, const char* kind,
                       const layer_group& group) {
  auto name =
      scope.options().prefix + (context.path().empty() ? kind : context.path());
  auto is_whole = group.last - group.first == context.copies();
  if (scope.options().group_size != 0 && !is_whole)
    name += fmt::format(" (copies {} to {})", group.first, group.last - 1);
  return name;
}

/// The group's first copy opens the group for the others.
batch_norm_participant open(const replication_scope& scope,
                            const callback_context& context, const char* kind,
                            layer_group& group) {
  sync_options options;
  options.layer = layer_name(scope, context, kind, group);
  options.deadline = scope.options().deadline;
  auto copies = group.last - group.first;
  // The other copies are not here yet.
  if (scope.distant() != nullptr)
    options.participants = copies;
  if (scope.graph() == graph_kind::joint && copies > 1)
    group.joint =
        std::make_shared<joint_rounds>(static_cast<std::size_t>(copies));
  if (scope.graph() == graph_kind::own && scope.distant() == nullptr) {
    group.devices =
        std::make_shared<device_table>(static_cast<std::size_t>(copies));
    group.graphs =
        std::make_shared<graph_table>(static_cast<std::size_t>(copies));
  }
  if (scope.session())
    group.calls =
        std::make_shared<layer_calls>(options.layer, scope.session()->copies(),
                                      static_cast<std::size_t>(group.first),
                                      static_cast<std::size_t>(group.last));
  batch_norm_participant result{scope.system(), options, copies};
  group.master = result.master();
  if (scope.distant() == nullptr)
    group.relays =
        spawn_batch_norm_relays(scope.system(), group.master, options, copies);
  return result;
}

const batch_norm_master_actor& find_master(const layer_masters& masters,
                                           const std::string& path) {
  auto found =
      std::ranges::find(masters, path, [](const auto& x) { return x.path; });
  if (found == masters.end() || !found->master)
    throw error{errc::invalid_argument,
                fmt::format("follow_copies: layer \"{}\": expected its master, "
                            "found none among {}",
                            path, masters.size())};
  return found->master;
}

/// Registers a copy. A master may hear of the new seat before it learns that
/// another copy, or this one itself, has left the seat of that identifier: then
/// it is asked again.
batch_norm_participant follow(caf::actor_system& system,
                              const batch_norm_master_actor& master,
                              std::int64_t copy_id) {
  using clock = std::chrono::steady_clock;
  auto end = clock::now() + std::chrono::seconds{1};
  for (;;) {
    try {
      return {system, master, copy_id};
    } catch (const error& x) {
      if (x.code() != errc::duplicate_identifier || clock::now() >= end)
        throw;
    }
    std::this_thread::yield();
  }
}

participant_ptr make_distant_seat(const replication_scope& scope,
                                  callback_context& context,
                                  distant_copies& all, const char* kind) {
  layer_group group;
  group.last = all.copies;
  auto name = layer_text(kind, context.path());
  auto layer = layer_name(scope, context, kind, group);
  if (all.copy_id != 0)
    return std::make_shared<layer_seat>(
        follow(scope.system(), find_master(all.masters, context.path()),
               all.copy_id),
        std::move(name), std::move(layer), all.copy_id, nullptr, group);
  auto taking_part = open(scope, context, kind, group);
  all.masters.push_back({context.path(), group.master});
  return std::make_shared<layer_seat>(std::move(taking_part), std::move(name),
                                      std::move(layer), 0, nullptr, group);
}

} // namespace

participant_ptr make_seat(const replication_scope& scope,
                          callback_context& context, std::int64_t copy_id,
                          const char* kind) {
  if (auto* distant = scope.distant())
    return make_distant_seat(scope, context, *distant, kind);
  if (copy_id == 0)
    context.publish(std::make_shared<std::vector<layer_group>>(
        divide(context.copies(), scope.options().group_size)));
  auto& groups = *context.published<layer_groups>();
  auto group = std::find_if(groups.begin(), groups.end(),
                            [&](const auto& x) { return copy_id < x.last; });
  auto taking_part =
      copy_id == group->first
          ? open(scope, context, kind, *group)
          : batch_norm_participant{scope.system(),
                                   group->relays->at(copy_id - group->first),
                                   copy_id - group->first};
  auto seat = std::make_shared<layer_seat>(
      std::move(taking_part), layer_text(kind, context.path()),
      layer_name(scope, context, kind, *group), copy_id, scope.session(),
      *group);
  if (scope.session())
    scope.session()->add_seat(group->calls, static_cast<std::size_t>(copy_id),
                              seat.get());
  return seat;
}

round_reply merge_alone(round_request request) {
  auto like = request.device_values;
  return reply_reader{}.read(merge_round(to_message(std::move(request))), like);
}

} // namespace syncnorm::nn::detail
