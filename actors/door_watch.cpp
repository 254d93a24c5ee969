#include "door_watch.hpp"

#include "syncnorm/config.hpp"

#include <fmt/format.h>

#include <atomic>

namespace syncnorm::detail {

namespace {

/// A port at which this process serves. Never deleted, for a connection may
/// look at it at any time; there are as many as ports were published.
struct door {
  std::uint16_t port;
  caf::actor_addr published;
  caf::actor_addr listener;
  door* next;
};

/// The newest first: it hides an older one of the same port.
std::atomic<door*> doors{nullptr};

} // namespace

void watch_door(std::uint16_t port, const caf::strong_actor_ptr& published,
                const caf::actor& listener) {
  auto* added = new door{port, caf::actor_cast<caf::actor_addr>(published),
                         caf::actor_cast<caf::actor_addr>(listener),
                         doors.load(std::memory_order_acquire)};
  while (!doors.compare_exchange_weak(added->next, added,
                                      std::memory_order_acq_rel)) {
  }
}

void tell_door(std::uint16_t port, const std::string& who,
               const std::string& why) {
  auto* x = doors.load(std::memory_order_acquire);
  while (x != nullptr && x->port != port)
    x = x->next;
  if (x == nullptr)
    return;
  auto line = fmt::format("{} is refused: {}", who, why);
  if (auto published = caf::actor_cast<caf::strong_actor_ptr>(x->published))
    if (auto& system = *published->home_system;
        accepts_log(system, log_level::warning))
      write_log(system, log_level::warning, line);
  if (auto listener = caf::actor_cast<caf::actor>(x->listener))
    detail::anon_send(listener, line);
}

} // namespace syncnorm::detail
