#include "bench/collective/contestants.hpp"
#include "bench/collective/payload.hpp"

#include "syncnorm/sync_relay.hpp"

#include <malloc.h>

#include <memory>
#include <tuple>
#include <vector>

namespace syncnorm::bench {

namespace {

/// The smallest participant of a collective: a registered actor with its pipe.
class idle_slave : public caf::event_based_actor {
public:
  using master_type = sync_master_actor<float_array, float_array>;

  idle_slave(caf::actor_config& config, master_type master,
             std::int64_t identifier, detail::reply_slot ready)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        identifier_{identifier},
        ready_{detail::writer_of<bool>(std::move(ready))} {}

  caf::behavior make_behavior() override {
    register_slave(this, master_, identifier_)
        .then([this](const slave_ticket& ticket) {
          pipe_.emplace(master_, ticket);
          std::exchange(ready_, nullptr)->put(true);
        });
    return {[](int) {}};
  }

private:
  master_type master_;
  std::int64_t identifier_;
  std::shared_ptr<future_writer<bool>> ready_;
  std::optional<slave_pipe<float_array, float_array>> pipe_;
};

std::size_t bytes_in_use() {
  auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

} // namespace

double bytes_per_idle_slave(caf::actor_system& system, int slaves, int fan_in) {
  const sync_options options{.layer = "bench", .fan_in = fan_in};
  auto master = spawn_sync_master<float_array, float_array>(system, options,
                                                            sum_of_payloads());
  std::vector<caf::actor> actors;
  actors.reserve(static_cast<std::size_t>(slaves));
  auto before = bytes_in_use();
  sync_relays<float_array, float_array> relays{system, master, options,
                                               slaves + 1, add};
  for (int i = 1; i <= slaves; ++i) {
    auto ready = std::make_shared<future_result<bool>>();
    actors.push_back(system.spawn<idle_slave>(relays.at(i), i,
                                              detail::make_reply_slot(ready)));
    std::ignore = ready->get();
  }
  auto after = bytes_in_use();
  for (const auto& x : actors)
    caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
  return static_cast<double>(after - before) / slaves;
}

} // namespace syncnorm::bench
