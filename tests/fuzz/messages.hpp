#pragma once

#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/relay_wire.hpp"
#include "syncnorm/message_types.hpp"

#include "tests/actors/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

// Everything that a message from another node can hold, read from arbitrary
// bytes: the first byte says as which kind.

namespace syncnorm::fuzz {

/// Reads a T. What was read must survive being written and read again.
/// @returns false if it does not.
template <class T>
bool read_as(std::span<const std::byte> bytes, caf::actor_system&) {
  T x;
  if (!test::deserialize(bytes, x))
    return true;
  auto first = test::serialize(x);
  T y;
  return test::deserialize(std::span<const std::byte>{first}, y)
         && test::serialize(y) == first;
}

/// A relay's message is passed on to the master, which unwraps it.
inline bool read_parts(std::span<const std::byte> bytes,
                       caf::actor_system& system) {
  relay_parts x;
  if (!test::deserialize(bytes, x, &system))
    return true;
  auto relay = detail::participant::relay(3, 10);
  auto parts = detail::unwrap_parts<double_array>(relay, x);
  return !parts || parts->size() == x.first.size();
}

/// A relay's reason is written to texts and logs.
inline bool read_reason(std::span<const std::byte> bytes,
                        caf::actor_system& system) {
  caf::error x;
  if (!test::deserialize(bytes, x, &system) || x == caf::none)
    return true;
  return !describe(x).empty();
}

/// CAF 0.17 reads two types of its own, which any message may hold, in a way
/// that cannot be made safe here (docs/network.md): for a vector<char> it
/// allocates the announced size, up to 4 GiB, before it looks for bytes, and
/// for a config_value that names none of its alternatives it throws.
inline bool holds_unsafe_type(std::span<const std::byte> bytes) {
  std::string_view text{reinterpret_cast<const char*>(bytes.data()),
                        bytes.size()};
  auto holds = [&](std::string_view name) {
    return text.find(name) != text.npos;
  };
  return SYNCNORM_CAF_LEGACY && (holds("@charbuf") || holds("@config_value"));
}

/// Each kind of message, in the order of the corpus' first byte.
inline bool read(std::span<const std::byte> bytes, caf::actor_system& system) {
  using reader = bool (*)(std::span<const std::byte>, caf::actor_system&);
  constexpr reader readers[] = {
      read_as<float_array>,
      read_as<double_array>,
      read_as<shared_tensor>,
      read_as<round_tag>,
      read_as<slave_ticket>,
      read_as<batch_norm_message>,
      read_as<batch_norm_reply>,
      read_as<statistics_update>,
      read_as<errc>,
      read_parts,
      read_reason,
      read_as<shared_tensors>,
      read_as<sync_metrics>,
  };
  if (bytes.empty() || holds_unsafe_type(bytes))
    return true;
  auto kind = std::to_integer<std::size_t>(bytes[0]) % std::size(readers);
  return readers[kind](bytes.subspan(1), system);
}

} // namespace syncnorm::fuzz
