#pragma once

#include "tests/actors/below.hpp"
#include "tests/actors/simulation.hpp"

#include <caf/actor_proxy.hpp>
#include <caf/make_actor.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

// Nodes and the connections between them, without a network: actors of one
// simulated system. The test says where they live, and they have proxies of
// each other as CAF's middleman makes them.

namespace syncnorm::test {

/// A connection's way from one node to another.
struct direction {
  std::size_t from = 0;
  std::size_t to = 0;

  auto operator<=>(const direction&) const = default;
};

/// What a connection brings.
struct simulated_packet {
  /// A message; no receiver if this reports an actor's end.
  caf::strong_actor_ptr receiver{};
  caf::strong_actor_ptr sender{};
  caf::message_id id{};
  caf::message content{};
  /// The proxy of the actor whose end is reported, and why it ended.
  caf::strong_actor_ptr ended{};
  caf::error reason{};
};

class simulated_network;

/// An actor of another node, as one node sees it.
class simulated_proxy final : public caf::actor_proxy {
public:
  simulated_proxy(caf::actor_config& config, simulated_network& network,
                  direction way, caf::strong_actor_ptr there)
      : caf::actor_proxy{config},
        network_{network},
        way_{way},
        there_{std::move(there)} {}

  const char* name() const override {
    return "syncnorm.test.proxy";
  }

  detail::enqueue_result enqueue(caf::mailbox_element_ptr message,
                                 detail::worker_type*) override;

  void kill_proxy(detail::worker_type* worker, caf::error reason) override {
    there_ = nullptr;
    cleanup(std::move(reason), worker);
  }

private:
#if !SYNCNORM_CAF_LEGACY
  void force_close_mailbox() override {}
#endif

  simulated_network& network_;
  const direction way_;
  /// Null once the actor has ended or its node is lost.
  caf::strong_actor_ptr there_;
};

/// All connections. Messages on one arrive in order, those on several in any
/// order.
class simulated_network {
public:
  explicit simulated_network(caf::actor_system& system) : system_{&system} {}

  simulated_network(const simulated_network&) = delete;
  simulated_network& operator=(const simulated_network&) = delete;

  ~simulated_network() {
    *is_there_ = false;
  }

  /// The handle that node `at` has of an actor on node `home`; if these nodes
  /// have lost each other, that of an ended actor.
  caf::strong_actor_ptr seen(std::size_t at, std::size_t home,
                             const caf::strong_actor_ptr& actor) {
    if (!actor || at == home)
      return actor;
    auto& proxy = proxies_[at][actor->id()];
    if (!proxy)
      proxy = make_proxy({at, home}, actor);
    auto result = proxy;
    if (is_cut({home, at}) && !is_unnoticed({home, at}))
      forget(at, result, lost());
    return result;
  }

  /// Whether any node has a handle of an actor on another one.
  [[nodiscard]] bool has_proxies() const {
    return std::ranges::any_of(proxies_,
                               [](const auto& x) { return !x.second.empty(); });
  }

  void send(direction way, simulated_packet packet) {
    if (!is_cut(way))
      packets_[way].push_back(std::move(packet));
  }

  [[nodiscard]] bool has_packets() const {
    return !packets_.empty();
  }

  /// The first packet of any connection arrives.
  void deliver(std::mt19937& random) {
    auto chosen =
        std::next(packets_.begin(), below(random, std::ssize(packets_)));
    auto way = chosen->first;
    auto packet = std::move(chosen->second.front());
    chosen->second.pop_front();
    if (chosen->second.empty())
      packets_.erase(chosen);
    if (packet.ended)
      return forget(way.to, packet.ended, packet.reason);
    packet.receiver->get()->enqueue(
        detail::make_element(seen(way.to, way.from, packet.sender), packet.id,
                             std::move(packet.content)),
        nullptr);
  }

  // -- lost connections -------------------------------------------------------

  /// Nothing arrives any more, in either direction; both sides have yet to
  /// notice.
  void cut(std::size_t one, std::size_t other) {
    for (auto way : {direction{one, other}, direction{other, one}}) {
      unnoticed_.push_back(way);
      packets_.erase(way);
    }
    cuts_.push_back({one, other});
  }

  [[nodiscard]] bool is_cut(direction way) const {
    return std::ranges::any_of(cuts_, [&](const auto& x) {
      return x == way || x == direction{way.to, way.from};
    });
  }

  /// The pairs of nodes whose connections are cut.
  [[nodiscard]] const std::vector<direction>& cuts() const noexcept {
    return cuts_;
  }

  [[nodiscard]] bool is_all_noticed() const noexcept {
    return unnoticed_.empty();
  }

  /// One side hears no sign of life any more.
  /// @returns whether there was one that had not noticed.
  bool notice(std::mt19937& random) {
    if (is_all_noticed())
      return false;
    auto chosen = unnoticed_.begin() + below(random, std::ssize(unnoticed_));
    auto way = *chosen;
    unnoticed_.erase(chosen);
    lose(way.to, [&](const simulated_proxy& x) { return is_from(x, way); });
    return true;
  }

  /// Reconnects what was cut; both sides must have noticed.
  std::vector<direction> mend() {
    return std::exchange(cuts_, {});
  }

  /// All proxies end.
  void close() {
    for (auto& [at, ignored] : proxies_)
      lose(at, [](const simulated_proxy&) { return true; });
    packets_.clear();
  }

private:
  friend class simulated_proxy;

  using proxies = std::map<caf::actor_id, caf::strong_actor_ptr>;

  static simulated_proxy& proxy_of(const caf::strong_actor_ptr& x) {
    return dynamic_cast<simulated_proxy&>(*x->get());
  }

  caf::strong_actor_ptr make_proxy(direction way,
                                   const caf::strong_actor_ptr& actor) {
    caf::actor_config config;
    auto result = caf::make_actor<simulated_proxy, caf::strong_actor_ptr>(
        actor->id(), node_of(way.to), system_, config, *this, way, actor);
    auto tell = [this, there = is_there_, way, result](const caf::error& why) {
      if (*there)
        send({way.to, way.from}, {.ended = result, .reason = why});
    };
    actor->get()->attach_functor(std::move(tell));
    return result;
  }

  /// An identity different from this system's own.
  static caf::node_id node_of(std::size_t number) {
    constexpr std::size_t digits = 40;
    auto process = static_cast<std::uint32_t>(number + 1);
    return *caf::make_node_id(process, std::string(digits, 'a'));
  }

  void forget(std::size_t at, const caf::strong_actor_ptr& proxy,
              const caf::error& reason) {
    std::erase_if(proxies_[at],
                  [&](const auto& x) { return x.second == proxy; });
    proxy_of(proxy).kill_proxy(nullptr, reason);
  }

  template <class Predicate>
  void lose(std::size_t at, Predicate is_lost) {
    std::vector<caf::strong_actor_ptr> gone;
    for (const auto& [id, proxy] : proxies_[at])
      if (is_lost(proxy_of(proxy)))
        gone.push_back(proxy);
    for (const auto& x : gone)
      forget(at, x, lost());
  }

  static caf::error lost() {
    return caf::make_error(caf::exit_reason::remote_link_unreachable);
  }

  [[nodiscard]] bool is_unnoticed(direction way) const {
    return std::ranges::find(unnoticed_, way) != unnoticed_.end();
  }

  static bool is_from(const simulated_proxy& x, direction way) {
    return x.node() == node_of(way.from);
  }

  caf::actor_system* system_;
  /// Each node's proxies, by the actor that they stand for.
  std::map<std::size_t, proxies> proxies_;
  std::map<direction, std::deque<simulated_packet>> packets_;
  std::vector<direction> cuts_;
  std::vector<direction> unnoticed_;
  /// Actors may outlive the network, and then report their end.
  std::shared_ptr<bool> is_there_ = std::make_shared<bool>(true);
};

inline detail::enqueue_result
simulated_proxy::enqueue(caf::mailbox_element_ptr message,
                         detail::worker_type*) {
  simulated_packet packet{
      .receiver = there_, .sender = message->sender, .id = message->mid};
#if SYNCNORM_CAF_LEGACY
  packet.content = message->move_content_to_message();
#else
  packet.content = std::move(message->payload);
#endif
  if (there_)
    network_.send(way_, std::move(packet));
  return detail::enqueue_result(there_ != nullptr);
}

/// A random actor takes a message, or a random connection brings one.
/// @returns whether there was one.
inline bool step(simulation& here, simulated_network& network,
                 std::mt19937& random) {
  auto ready = static_cast<std::int64_t>(here.ready());
  if (network.has_packets() && (ready == 0 || below(random, 3) == 0))
    network.deliver(random);
  else if (ready != 0)
    here.run(static_cast<std::size_t>(below(random, ready)));
  else
    return false;
  return true;
}

} // namespace syncnorm::test
