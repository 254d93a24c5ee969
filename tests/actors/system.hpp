#pragma once

#include "syncnorm/sync_master.hpp"

#include <cstdint>
#include <span>
#include <vector>

// What the tests of the collective share: an actor system, and a callback whose
// reply shows what went into it and in which order.

CAF_BEGIN_TYPE_ID_BLOCK(syncnorm_test, caf::first_custom_type_id)

CAF_ADD_TYPE_ID(syncnorm_test, (std::vector<std::int64_t>) )
CAF_ADD_ATOM(syncnorm_test, syncnorm::test, go_atom, "go")

CAF_ADD_ATOM(syncnorm_test, syncnorm::test, enlist_atom, "enlist")
CAF_ADD_ATOM(syncnorm_test, syncnorm::test, play_atom, "play")
CAF_ADD_ATOM(syncnorm_test, syncnorm::test, late_atom, "late")

CAF_END_TYPE_ID_BLOCK(syncnorm_test)

namespace syncnorm::test {

/// Registers the message types before CAF looks for them, so that a member of
/// a test can be an actor system.
struct config : caf::actor_system_config {
  config();
};

int init_types();

/// An actor system of a test case.
struct system_fixture {
  int types = init_types();
  config cfg;
  caf::actor_system system{cfg};
};

using trace = std::vector<std::int64_t>;

/// Replies to everybody with the messages in the order of the callback's input.
inline std::vector<identified<trace>>
tell_order(std::span<identified<std::int64_t>> messages) {
  trace order;
  for (const auto& x : messages)
    order.push_back(x.message);
  std::vector<identified<trace>> replies;
  for (const auto& x : messages)
    replies.push_back({x.identifier, order});
  return replies;
}

/// Replies to everybody with the sum.
inline std::vector<identified<double>>
add_up(std::span<identified<double>> messages) {
  double sum = 0;
  for (const auto& x : messages)
    sum += x.message;
  std::vector<identified<double>> replies;
  for (const auto& x : messages)
    replies.push_back({x.identifier, sum});
  return replies;
}

} // namespace syncnorm::test
