#include "trainer/run/replica_group.hpp"

#include "trainer/plan/epoch_order.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/gather.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace syncnorm::train {

namespace {

/// Of several errors, that of a replica at fault, else the first one; nothing
/// if there is none.
template <class Result>
std::optional<std::string> cause_of(const answers<Result>& all) {
  const caf::error* cause = nullptr;
  for (const auto& x : all)
    if (!x.value
        && (cause == nullptr
            || (is_consequence(*cause) && !is_consequence(x.problem))))
      cause = &x.problem;
  if (cause == nullptr)
    return std::nullopt;
  return text_of(*cause);
}

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
                             std::chrono::nanoseconds deadline)
    : system_{system},
      members_{std::move(members)},
      deadline_{deadline} {}

replica_group::~replica_group() {
  kill(members_);
}

void replica_group::replace(std::vector<replica_actor> members) {
  std::swap(members_, members);
  std::erase_if(members, [this](const auto& x) {
    return std::ranges::find(members_, x) != members_.end();
  });
  kill(members);
}

template <class Result, class Make>
std::vector<Result> replica_group::ask(std::size_t count, Make make) {
  auto end = members_.begin() + static_cast<std::ptrdiff_t>(count);
  auto all = gather<Result>(system_, {members_.begin(), end}, std::move(make),
                            {deadline_, std::nullopt});
  if (auto cause = cause_of(all))
    throw replica_failure{*cause};
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
    return detail::request(self, member, settle_atom_v, places[i],
                           counts[machine_of(member)]);
  });
}

void replica_group::assemble() {
  settle();
  auto leader =
      ask<lineup>(1, [n = size()](auto* self, const auto& member, std::size_t) {
        return detail::request(self, member, lead_atom_v, std::uint64_t{n});
      })[0];
  auto lineups = relay(leader);
  auto follow = [&lineups, n = size()](auto* self, const auto& member,
                                       std::size_t i) {
    return detail::request(self, member, follow_atom_v, lineups[i + 1],
                           std::uint64_t{i + 1}, std::uint64_t{n});
  };
  auto all =
      gather<acknowledged>(system_, {members_.begin() + 1, members_.end()},
                           follow, {deadline_, std::nullopt});
  if (auto cause = cause_of(all))
    throw replica_failure{*cause};
}

std::vector<lineup> replica_group::relay(const lineup& leader) {
  std::vector<lineup> result(size(), leader);
  // Neighbours of one process.
  std::vector<position_range> processes;
  for (std::size_t begin = 0, end = 0; begin < size(); begin = end) {
    auto node = members_[begin].node();
    while (end < size() && members_[end].node() == node)
      ++end;
    if (node != system_.node() && end - begin > 1)
      processes.push_back({begin, end});
  }
  std::vector<replica_actor> firsts;
  for (const auto& x : processes)
    firsts.push_back(members_[x.begin]);
  auto all = gather<lineup>(system_, firsts,
                            [&](auto* self, const auto& member, std::size_t i) {
                              return detail::request(
                                  self, member, relay_atom_v, leader,
                                  std::uint64_t{processes[i].begin},
                                  std::uint64_t{processes[i].size()});
                            },
                            {deadline_, std::nullopt});
  if (auto cause = cause_of(all))
    throw replica_failure{*cause};
  for (std::size_t i = 0; i < processes.size(); ++i)
    std::fill(result.begin() + static_cast<std::ptrdiff_t>(processes[i].begin),
              result.begin() + static_cast<std::ptrdiff_t>(processes[i].end),
              *all[i].value);
  return result;
}

void replica_group::level() {
  load(save({}), "replica 0");
}

std::vector<step_report> replica_group::step(const step_plan& plan) {
  auto all = gather<step_report>(
      system_, members_,
      [plan](auto* self, const auto& member, std::size_t) {
        return detail::request(self, member, step_atom_v, plan);
      },
      {deadline_, std::nullopt});
  if (auto cause = cause_of(all))
    throw replica_failure{*cause, all[0].value};
  std::vector<step_report> reports;
  for (const auto& x : all)
    reports.push_back(*x.value);
  return reports;
}

evaluation replica_group::evaluate(std::uint64_t samples,
                                   std::size_t replicas) {
  auto parts = ask<evaluation>(replicas, [=](auto* self, const auto& member,
                                             std::size_t i) {
    auto part = shard_of({0, samples}, replicas, i);
    return detail::request(self, member, evaluate_atom_v,
                           std::uint64_t{part.begin}, std::uint64_t{part.end});
  });
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
        return detail::request(self, member, hash_atom_v);
      });
  for (std::size_t i = 1; i < hashes.size(); ++i)
    if (hashes[i] != hashes[0])
      throw failure{fmt::format("replica {}: the weights differ from replica "
                                "0's: expected the hash {:016x}, found {:016x}",
                                i, hashes[0], hashes[i])};
}

std::string replica_group::save(const std::string& state) {
  return ask<std::string>(
      1, [&state](auto* self, const auto& member, std::size_t) {
        return detail::request(self, member, save_atom_v, state);
      })[0];
}

void replica_group::load(const std::string& content, const std::string& name) {
  ask<acknowledged>(size(), [&](auto* self, const auto& member, std::size_t) {
    return detail::request(self, member, load_atom_v, content, name);
  });
}

std::vector<bool> replica_group::who_is_there() {
  auto all =
      gather<acknowledged>(system_, members_,
                           [](auto* self, const auto& member, std::size_t) {
                             return detail::request(self, member, ping_atom_v);
                           },
                           {deadline_, deadline_});
  std::vector<bool> result;
  for (const auto& x : all)
    result.push_back(x.value.has_value());
  return result;
}

} // namespace syncnorm::train
