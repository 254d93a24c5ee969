#pragma once

#include "tests/fuzz/messages.hpp"
#include "tests/fuzz/trainer_files.hpp"

#include "trainer/run/error_text.hpp"
#include "trainer/run/gradient_sum.hpp"
#include "trainer/run/host.hpp"
#include "trainer/run/messages.hpp"
#include "trainer/run/model_state.hpp"
#include "trainer/run/request_check.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

// Everything that the trainer reads and has not just written itself: messages
// of other processes, and files. The first byte says which kind.

namespace syncnorm::fuzz {

/// Reads a T that may hold actors. What was read must survive being written and
/// read again.
template <class T>
bool read_with_actors(std::span<const std::byte> bytes,
                      caf::actor_system& system) {
  T x;
  if (!test::deserialize(bytes, x, &system))
    return true;
  auto first = test::serialize(x, &system);
  T y;
  return test::deserialize(std::span<const std::byte>{first}, y, &system)
         && test::serialize(y, &system) == first;
}

/// The bits of a sum; all NaNs count as equal, as their bits depend on the
/// arithmetic.
inline std::vector<std::uint64_t> bits_of(const train::gradient_sum& x) {
  std::vector<std::uint64_t> result{x.finite, x.gradient.f32.size(),
                                    x.gradient.f64.size()};
  auto add = [&result](double value) {
    result.push_back(value != value ? 1 : std::bit_cast<std::uint64_t>(value));
  };
  add(x.loss);
  std::ranges::for_each(x.gradient.f32, add);
  std::ranges::for_each(x.gradient.f64, add);
  return result;
}

/// Gradients that replicas send are added or refused; a relay in front of some
/// of them changes no bit.
inline bool read_gradients(std::span<const std::byte> bytes,
                           caf::actor_system&) {
  std::vector<train::gradient_part> sent;
  if (!test::deserialize(bytes, sent) || sent.empty() || sent.size() > 64)
    return true;
  std::vector<identified<train::gradient_part>> flat;
  for (auto& x : sent)
    flat.push_back({static_cast<std::int64_t>(flat.size()), std::move(x)});
  auto relayed = flat;
  try {
    auto sum = train::finish_gradients(train::merge_gradients(flat));
    // Identifiers 0 to 7 are a node of the tree.
    auto some = std::span{relayed}.first(std::min<std::size_t>(8, flat.size()));
    auto first = train::merge_gradients(some);
    relayed.erase(relayed.begin(), relayed.begin() + std::ssize(some) - 1);
    relayed[0] = {0, std::move(first)};
    return bits_of(train::finish_gradients(train::merge_gradients(relayed)))
           == bits_of(sum);
  } catch (const error& x) {
    return x.code() == errc::shape_mismatch;
  }
}

/// A step that a replica accepts lies within its data set.
inline bool read_step(std::span<const std::byte> bytes,
                      caf::actor_system& system) {
  constexpr std::uint64_t samples = 1000;
  train::step_plan x;
  if (test::deserialize(bytes, x)) {
    try {
      train::require_range(x.begin, x.end, samples);
      if (x.begin > x.end || x.end > samples)
        return false;
    } catch (const train::failure&) {
    }
  }
  return read_as<train::step_plan>(bytes, system);
}

/// A state that a replica accepts has as many values as its model, of the
/// model's type, and no others; the corpus has one of a model in float32.
inline bool read_model_state(std::span<const std::byte> bytes,
                             caf::actor_system& system) {
  train::model_state x;
  if (test::deserialize(bytes, x)) {
    auto has = [](const train::flat_array& values, std::size_t size) {
      return values.f32.size() == size && values.f64.size() == 0;
    };
    try {
      train::require_fit(x, {7, false, 3, 2, 1});
      if (!has(x.weights, 3) || !has(x.velocity, 3) || !has(x.statistics, 2)
          || x.batches.size() != 1 || x.batches[0] < 0)
        return false;
    } catch (const train::failure&) {
    }
  }
  return read_as<train::model_state>(bytes, system);
}

/// An application for a place, sent twice, with real replicas in place of those
/// that cannot be made up, is accepted once or refused, with lines that can be
/// printed.
inline bool read_applicant(std::span<const std::byte> bytes,
                           caf::actor_system& system) {
  train::application x;
  if (!test::deserialize(bytes, x, &system) || x.replicas.size() > 1000)
    return true;
  auto host = train::spawn_host(system, {"model=cnn\n", 2},
                                std::make_shared<std::atomic<std::uint64_t>>());
  caf::scoped_actor self{system};
  for (auto& replica : x.replicas)
    replica = caf::actor_cast<train::replica_actor>(caf::actor{self});
  auto admitted = 0;
  auto good = true;
  for (int i = 0; i < 2; ++i)
    detail::request(self, host, train::join_atom_v, x)
        .receive([&](std::uint64_t) { ++admitted; },
                 [&](const caf::error& why) {
                   good = good && !train::text_of(why).empty();
                 });
  detail::request(self, host, train::refusals_atom_v)
      .receive(
          [&](const std::vector<std::string>& lines) {
            for (const auto& line : lines)
              good = good && train::printable(line, 1000) == line;
            good = good && !lines.empty();
          },
          [&](const caf::error&) { good = false; });
  caf::anon_send_exit(host, caf::exit_reason::kill);
  return good && admitted <= 1;
}

/// Each kind, in the order of the corpus' first byte.
inline bool read_trainer(std::span<const std::byte> bytes,
                         caf::actor_system& system) {
  using reader = bool (*)(std::span<const std::byte>, caf::actor_system&);
  constexpr reader readers[] = {
      read_step,
      read_as<train::step_report>,
      read_as<train::gradient_part>,
      read_as<train::gradient_sum>,
      read_as<train::evaluation>,
      read_with_actors<train::lineup>,
      read_with_actors<train::application>,
      read_with_actors<std::vector<train::process_entry>>,
      read_gradients,
      read_idx,
      read_cifar10,
      read_metrics_file,
      read_run_state,
      read_seal,
      read_options,
      read_launch,
      read_identity,
      read_applicant,
      read_model_state,
  };
  if (bytes.empty())
    return true;
  auto kind = std::to_integer<std::size_t>(bytes[0]) % std::size(readers);
  return readers[kind](bytes.subspan(1), system);
}

} // namespace syncnorm::fuzz
