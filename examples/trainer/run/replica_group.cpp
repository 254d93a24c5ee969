#include "trainer/run/replica_group.hpp"

#include "trainer/plan/epoch_order.hpp"
#include "trainer/run/error_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace syncnorm::train {

namespace {

/// In deadlines: a replica that has not answered by then never will.
constexpr int patience = 10;

/// The text of a node begins with a hash of its machine.
std::string machine_of(const replica_actor& x) {
  auto node = caf::to_string(x.node());
  return node.substr(0, node.find('#'));
}

void kill(const std::vector<replica_actor>& members) {
  for (const auto& member : members)
    caf::anon_send_exit(member, caf::exit_reason::user_shutdown);
}

} // namespace

replica_group::replica_group(caf::actor_system& system,
                             std::vector<replica_actor> members,
                             std::chrono::nanoseconds deadline,
                             std::int64_t fan_in)
    : system_{system},
      asker_{system.spawn<asker>()},
      members_{std::move(members)},
      deadline_{deadline},
      fan_in_{fan_in} {}

replica_group::~replica_group() {
  kill(members_);
  caf::anon_send_exit(asker_, caf::exit_reason::user_shutdown);
}

void replica_group::replace(std::vector<replica_actor> members) {
  std::swap(members_, members);
  std::erase_if(members, [this](const auto& x) {
    return std::ranges::find(members_, x) != members_.end();
  });
  kill(members);
}

gather_limits replica_group::limits(bool is_long) const {
  gather_limits result{deadline_, patience * deadline_};
  if (!is_long)
    result.first = patience * deadline_;
  return result;
}

template <class Result>
std::optional<replica_failure>
replica_group::failure_of(const answers<Result>& all,
                          const std::vector<replica_actor>& members) const {
  std::string first;
  std::vector<culprit> guilty;
  std::vector<culprit> silent;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].value)
      continue;
    auto why = text_of(all[i].problem);
    if (members[i].node() != system_.node())
      why = printable(why, 1000);
    if (all[i].silent) {
      auto at = std::ranges::find(members_, members[i]) - members_.begin();
      why = fmt::format("replica {} {}", at, why);
      silent.push_back({members[i], why});
    } else if (!is_consequence(all[i].problem)) {
      guilty.push_back({members[i], why});
    }
    if (first.empty())
      first = why;
  }
  if (!guilty.empty())
    return replica_failure{guilty[0].why, guilty};
  if (first.empty())
    return std::nullopt;
  return replica_failure{first, silent};
}

template <class Result, class Make>
std::vector<Result> replica_group::ask(std::size_t count, Make make,
                                       bool is_long) {
  auto end = members_.begin() + static_cast<std::ptrdiff_t>(count);
  return ask_some<Result>({members_.begin(), end}, std::move(make), is_long);
}

template <class Result, class Make>
std::vector<Result> replica_group::ask_some(std::vector<replica_actor> members,
                                            Make make, bool is_long) {
  auto all = gather<Result>(asker_, members, std::move(make), limits(is_long));
  if (auto problem = failure_of(all, members))
    throw *problem;
  std::vector<Result> results;
  for (auto& x : all)
    results.push_back(std::move(*x.value));
  return results;
}

void replica_group::settle() {
  std::map<std::string, std::uint64_t> counts;
  std::vector<std::uint64_t> places;
  for (const auto& member : members_)
    places.push_back(counts[machine_of(member)]++);
  ask<acknowledged>(size(), [&](auto* self, const auto& member, std::size_t i) {
    return compat::request(self, member, settle_atom_v, places[i],
                           counts[machine_of(member)]);
  });
}

std::uint64_t replica_group::assemble() {
  settle();
  auto leader =
      ask<lineup>(1, [n = size()](auto* self, const auto& member, std::size_t) {
        return compat::request(self, member, lead_atom_v, std::uint64_t{n});
      })[0];
  auto lineups = relay(leader);
  auto follow = [&lineups, n = size()](auto* self, const auto& member,
                                       std::size_t i) {
    return compat::request(self, member, follow_atom_v, lineups[i + 1],
                           std::uint64_t{i + 1}, std::uint64_t{n});
  };
  ask_some<acknowledged>({members_.begin() + 1, members_.end()}, follow);
  return participants_of(leader);
}

std::uint64_t replica_group::participants_of(const lineup& leader) {
  if (leader.gradients.empty())
    return 0;
  caf::expected<std::uint64_t> result{caf::sec::runtime_error};
  caf::scoped_actor self{system_};
  // The gradients' master is like those of the layers.
  compat::request_within(self, deadline_, leader.gradients[0],
                         get_metrics_atom_v)
      .receive([&](const sync_metrics& x) { result = x.participants; },
               [&](const caf::error& x) { result = x; });
  if (!result)
    throw replica_failure{text_of(result.error())};
  return *result;
}

std::vector<lineup> replica_group::relay(const lineup& leader) {
  // Groups neighbours of one process.
  std::vector<replica_actor> firsts;
  std::vector<std::size_t> counts;
  for (const auto& member : members_) {
    if (firsts.empty() || member.node() != firsts.back().node()) {
      firsts.push_back(member);
      counts.push_back(0);
    }
    ++counts.back();
  }
  auto tree = plan_process_tree(counts, fan_in_);
  connect(tree, firsts);
  auto relays = spawn_relays(tree, firsts, leader);
  std::vector<lineup> result;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    auto at = tree.followed[i];
    result.insert(result.end(), counts[i], at ? relays[*at] : leader);
  }
  return result;
}

void replica_group::connect(const process_tree& tree,
                            const std::vector<replica_actor>& firsts) {
  std::map<std::size_t, std::string> doors;
  std::vector<replica_actor> lower;
  std::vector<std::size_t> above;
  for (std::size_t i = 0; i < firsts.size(); ++i)
    if (auto at = tree.above(i)) {
      doors[*at];
      lower.push_back(firsts[i]);
      above.push_back(*at);
    }
  std::vector<replica_actor> upper;
  for (const auto& [process, where] : doors)
    upper.push_back(firsts[process]);
  auto opened = ask_some<std::string>(
      upper, [](auto* self, const auto& member, std::size_t) {
        return compat::request(self, member, open_atom_v);
      });
  auto next = opened.begin();
  for (auto& [process, where] : doors)
    where = std::move(*next++);
  ask_some<acknowledged>(
      lower, [&](auto* self, const auto& member, std::size_t i) {
        return compat::request(self, member, reach_atom_v, doors[above[i]]);
      });
}

std::vector<lineup>
replica_group::spawn_relays(const process_tree& tree,
                            const std::vector<replica_actor>& firsts,
                            const lineup& leader) {
  std::vector<lineup> result(tree.relays.size());
  std::size_t left = tree.relays.size();
  for (std::size_t depth = 0; left > 0; ++depth) {
    std::vector<std::size_t> some;
    std::vector<replica_actor> members;
    for (std::size_t i = 0; i < tree.relays.size(); ++i)
      if (tree.relays[i].depth == depth) {
        some.push_back(i);
        members.push_back(firsts[tree.relays[i].process]);
      }
    auto made = ask_some<lineup>(
        members, [&](auto* self, const auto& member, std::size_t i) {
          const auto& relay = tree.relays[some[i]];
          return compat::request(self, member, relay_atom_v,
                                 relay.parent ? result[*relay.parent] : leader,
                                 static_cast<std::uint64_t>(relay.range.first),
                                 static_cast<std::uint64_t>(relay.range.count));
        });
    for (std::size_t i = 0; i < some.size(); ++i)
      result[some[i]] = std::move(made[i]);
    left -= some.size();
  }
  return result;
}

void replica_group::level() {
  assume(state());
}

void replica_group::begin_step(const step_plan& plan) {
  steps_.push_back(begin_gather<step_report>(
      asker_, members_,
      [plan](auto* self, const auto& member, std::size_t) {
        return compat::request(self, member, step_atom_v, plan);
      },
      limits(true)));
}

std::vector<step_report> replica_group::end_step() {
  auto first = std::move(steps_.front());
  steps_.pop_front();
  auto all = end_gather(asker_, std::move(first), size());
  leader_lost_ = leader_lost_ || all[0].silent;
  if (auto problem = failure_of(all, members_))
    throw replica_failure{problem->what(), problem->culprits(), all[0].value};
  std::vector<step_report> reports;
  for (const auto& x : all)
    reports.push_back(*x.value);
  return reports;
}

evaluation replica_group::evaluate(std::uint64_t samples,
                                   std::size_t replicas) {
  auto make = [=](auto* self, const auto& member, std::size_t i) {
    auto part = shard_of({0, samples}, replicas, i);
    return compat::request(self, member, evaluate_atom_v,
                           std::uint64_t{part.begin}, std::uint64_t{part.end});
  };
  auto parts = ask<evaluation>(replicas, make, true);
  evaluation sum;
  for (const auto& part : parts) {
    sum.samples += part.samples;
    sum.correct += part.correct;
    sum.loss += part.loss;
  }
  return sum;
}

void replica_group::require_same_weights() {
  auto hashes = ask<std::uint64_t>(
      size(), [](auto* self, const auto& member, std::size_t) {
        return compat::request(self, member, hash_atom_v);
      });
  for (std::size_t i = 1; i < hashes.size(); ++i)
    if (hashes[i] != hashes[0])
      throw failure{fmt::format("replica {}: the weights differ from replica "
                                "0's: expected the hash {:016x}, found {:016x}",
                                i, hashes[0], hashes[i])};
}

model_state replica_group::state() {
  if (leader_lost_)
    throw replica_failure{"replica 0 may be in the middle of a step"};
  return ask<model_state>(1, [](auto* self, const auto& member, std::size_t) {
    return compat::request(self, member, state_atom_v);
  })[0];
}

void replica_group::assume(const model_state& state) {
  assume(size(), state);
}

void replica_group::lead_with(const model_state& state) {
  assume(1, state);
}

void replica_group::assume(std::size_t count, const model_state& state) {
  auto make = [&](auto* self, const auto& member, std::size_t) {
    return compat::request(self, member, assume_atom_v, state);
  };
  ask<acknowledged>(count, make, true);
}

std::vector<std::optional<std::string>> replica_group::who_is_there() {
  auto all =
      gather<std::string>(asker_, members_,
                          [](auto* self, const auto& member, std::size_t) {
                            return compat::request(self, member, ping_atom_v);
                          },
                          {deadline_, deadline_, deadline_});
  std::vector<std::optional<std::string>> result;
  for (auto& x : all)
    result.push_back(std::move(x.value));
  return result;
}

} // namespace syncnorm::train
