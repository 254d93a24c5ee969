#include "trainer/run/relay_door.hpp"

#include "trainer/failure.hpp"
#include "trainer/output/complaint.hpp"
#include "trainer/plan/endpoint.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/refusal_list.hpp"
#include "trainer/run/this_machine.hpp"

#include "syncnorm/network.hpp"

#include <fmt/format.h>

namespace syncnorm::train {

namespace {

door_actor::behavior_type door_behavior(door_actor::pointer) {
  return {[](ping_atom) -> caf::result<void> { return caf::unit; }};
}

/// Prints whom TLS refused.
caf::behavior print_refusals() {
  return {[told = refusal_list{}](const std::string& text) mutable {
    if (auto line = told.add(text))
      complain(*line);
  }};
}

} // namespace

relay_door::relay_door(caf::actor_system& system, const settings& options)
    : system_{system},
      options_{options} {}

relay_door::~relay_door() {
  close();
}

void relay_door::close() {
  if (own_)
    caf::anon_send_exit(own_, caf::exit_reason::user_shutdown);
  if (doorkeeper_)
    caf::anon_send_exit(doorkeeper_, caf::exit_reason::user_shutdown);
  own_ = nullptr;
  doorkeeper_ = nullptr;
}

std::string relay_door::own_host() const {
  auto server = parse_endpoint("join", options_.join).host;
  auto own = address_towards(server);
  if (own.empty())
    throw failure{fmt::format("--listen: expected HOST:PORT, found none, and "
                              "no address of this machine leads to {}",
                              server)};
  return own;
}

std::string relay_door::open() {
  if (!where_.empty())
    return where_;
  auto where = options_.listen.empty()
                   ? endpoint{own_host(), 0}
                   : parse_endpoint("listen", options_.listen);
  own_ = system_.spawn(door_behavior);
  doorkeeper_ = system_.spawn(print_refusals);
  publish_options how{where.port, where.host, options_.insecure};
  how.reuse = true;
  how.on_refusal = doorkeeper_;
  auto port = publish_master(system_, own_, how);
  if (!port) {
    close();
    throw failure{fmt::format("--listen: {} cannot be had: {}",
                              to_string(where), text_of(port.error()))};
  }
  where.port = *port;
  where_ = to_string(where);
  return where_;
}

void relay_door::reach(const std::string& where) {
  leave();
  above_where_ = where;
  auto at = parse_endpoint("listen", where);
  auto found =
      remote_handle<door_actor>(system_, at.host, at.port,
                                {.patience = options_.round_deadline() / 2,
                                 .insecure = options_.insecure});
  if (!found) {
    why_ = fmt::format("does not reach {}, the process above it: {}", where,
                       text_of(found.error()));
    throw failure{why_};
  }
  above_ = *found;
}

void relay_door::leave() {
  above_ = nullptr;
  above_where_.clear();
  why_.clear();
}

std::string relay_door::find_break() const {
  if (above_where_.empty())
    return {};
  auto is_there = false;
  if (above_) {
    caf::scoped_actor self{system_};
    request_remote(self, options_.round_deadline() / 2, above_, ping_atom_v)
        .receive([&] { is_there = true; }, [](const caf::error&) {});
  }
  if (is_there)
    return {};
  if (!why_.empty())
    return why_;
  return fmt::format("does not reach {}, the process above it", above_where_);
}

} // namespace syncnorm::train
