#include "trainer/run/relay_station.hpp"

#include "trainer/failure.hpp"
#include "trainer/run/gradient_exchange.hpp"
#include "trainer/run/gradient_sum.hpp"

#include <algorithm>

namespace syncnorm::train {

namespace {

/// A lineup that comes from another process may hold anything.
void require_masters(const lineup& x) {
  auto is_one = [](const auto& master) { return bool{master}; };
  if (!std::ranges::all_of(x.layers, is_one, &layer_master::master)
      || !std::ranges::all_of(x.gradients, is_one))
    throw failure{"relays: expected a master to relay to, found none"};
}

} // namespace

relay_station::~relay_station() {
  close();
}

lineup relay_station::open(caf::actor_system& system, const lineup& parent,
                           replica_range range) {
  require_masters(parent);
  lineup result;
  for (const auto& [path, master] : parent.layers) {
    auto relay = spawn_batch_norm_relay(system, master, path, range);
    relays_.push_back(caf::actor_cast<caf::actor>(relay));
    result.layers.push_back({path, relay});
  }
  for (const auto& master : parent.gradients) {
    auto relay = spawn_sync_relay<gradient_part, gradient_sum>(
        system, master, gradient_lane(result.gradients.size()), range,
        merge_gradients);
    relays_.push_back(caf::actor_cast<caf::actor>(relay));
    result.gradients.push_back(relay);
  }
  return result;
}

void relay_station::close() {
  for (const auto& relay : relays_)
    caf::anon_send_exit(relay, caf::exit_reason::user_shutdown);
  relays_.clear();
}

} // namespace syncnorm::train
