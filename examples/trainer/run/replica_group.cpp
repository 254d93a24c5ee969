#include "trainer/run/replica_group.hpp"

#include "trainer/failure.hpp"
#include "trainer/plan/epoch_order.hpp"
#include "trainer/run/error_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace syncnorm::train {

namespace {

/// For answers without a value.
struct done {};

/// Of several errors, that of a replica at fault, else the first one.
[[noreturn]] void fail(const std::vector<caf::error>& errors) {
  auto cause = std::ranges::find_if_not(errors, is_consequence);
  throw failure{text_of(cause == errors.end() ? errors.front() : *cause)};
}

} // namespace

replica_group::replica_group(caf::actor_system& system,
                             std::vector<replica_actor> members)
    : self_{system},
      members_{std::move(members)} {}

replica_group::~replica_group() {
  for (const auto& member : members_)
    caf::anon_send_exit(member, caf::exit_reason::user_shutdown);
}

template <class Result, class Make>
std::vector<Result> replica_group::ask(std::size_t count, Make make) {
  std::vector<decltype(make(members_[0], std::size_t{}))> requests;
  for (std::size_t i = 0; i < count; ++i)
    requests.push_back(make(members_[i], i));
  std::vector<Result> results;
  std::vector<caf::error> errors;
  auto on_error = [&](caf::error& x) { errors.push_back(std::move(x)); };
  for (auto& request : requests)
    if constexpr (std::is_same_v<Result, done>)
      std::move(request).receive([] {}, on_error);
    else
      std::move(request).receive([&](const Result& x) { results.push_back(x); },
                                 on_error);
  if (!errors.empty())
    fail(errors);
  return results;
}

std::vector<step_report> replica_group::step(const step_plan& plan) {
  return ask<step_report>(size(), [&](const auto& member, std::size_t) {
    return detail::request(self_, member, step_atom_v, plan);
  });
}

evaluation replica_group::evaluate(std::uint64_t samples,
                                   std::size_t replicas) {
  auto parts = ask<evaluation>(replicas, [&](const auto& member,
                                             std::size_t i) {
    auto part = shard_of({0, samples}, replicas, i);
    return detail::request(self_, member, evaluate_atom_v,
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
  auto hashes =
      ask<std::uint64_t>(size(), [&](const auto& member, std::size_t) {
        return detail::request(self_, member, hash_atom_v);
      });
  for (std::size_t i = 1; i < hashes.size(); ++i)
    if (hashes[i] != hashes[0])
      throw failure{fmt::format("replica {}: the weights differ from replica "
                                "0's: expected the hash {:016x}, found {:016x}",
                                i, hashes[0], hashes[i])};
}

void replica_group::save(const std::string& file, const std::string& state) {
  ask<done>(1, [&](const auto& member, std::size_t) {
    return detail::request(self_, member, save_atom_v, file, state);
  });
}

void replica_group::load(const std::string& file) {
  ask<done>(size(), [&](const auto& member, std::size_t) {
    return detail::request(self_, member, load_atom_v, file);
  });
}

} // namespace syncnorm::train
