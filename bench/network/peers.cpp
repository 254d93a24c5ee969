#include "bench/network/peers.hpp"

#include "bench/network/plain_tcp.hpp"

#include "syncnorm/detail/brought_here.hpp"
#include "syncnorm/sync_master.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace syncnorm::bench {

namespace {

/// A slave that takes part in one round after the other.
class endless_slave : public caf::event_based_actor {
public:
  endless_slave(caf::actor_config& config, network_master master,
                std::int64_t identifier, std::uint64_t elements)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        identifier_{identifier},
        payload_{std::vector<float>(elements, 1.0F)} {}

  caf::behavior make_behavior() override {
    // The other process may end before it has sent its answer, and the deadline
    // of a benchmark's rounds is hours away.
    detail::monitor(
        this, caf::actor_cast<caf::actor>(master_),
        [this](const caf::actor_addr&, const caf::error&) { quit(); });
    register_slave(this, master_, identifier_)
        .then([this](const slave_ticket& ticket) {
          pipe_.emplace(master_, ticket);
          next();
        });
    return {[](int) {}};
  }

private:
  void next() {
    pipe_->run_slave(this, payload_)
        .then([this](const float_array&) { next(); },
              [this](const caf::error&) { quit(); });
  }

  network_master master_;
  std::int64_t identifier_;
  float_array payload_;
  std::optional<slave_pipe<float_array, float_array>> pipe_;
};

class receiver : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  caf::behavior make_behavior() override {
    return {
        [this](chunk_atom, std::uint64_t index, const float_array& x) {
          kept_.resize(std::max<std::size_t>(kept_.size(), index + 1));
          kept_[index] = x;
          return std::uint64_t{x.size()};
        },
        [this](total_atom) {
          double sum = 0;
          for (const auto& x : kept_)
            sum += std::accumulate(x.begin(), x.end(), 0.0);
          kept_.clear();
          return sum;
        },
    };
  }

private:
  std::vector<float_array> kept_;
};

class peer : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  caf::behavior make_behavior() override {
    return {
        [](echo_atom, const float_array& x) { return x; },
        [this](join_atom, const caf::actor& master, std::int64_t identifier,
               std::uint64_t elements) {
          spawn<endless_slave>(caf::actor_cast<network_master>(master),
                               identifier, elements);
        },
        [this](receiver_atom, bool here) {
          return caf::actor{
              spawn<detail::brought_here<receiver>, caf::linked>(here)};
        },
    };
  }
};

/// The other process: runs until `life` is closed.
void live(const std::optional<tls_options>& tls, int life, int port_pipe,
          int socket) {
  std::thread plain{[socket] { answer_plainly(socket); }};
  {
    network_config config{tls};
    caf::actor_system system{config};
    auto actor = system.spawn<peer>();
    auto port = publish_master(system, actor);
    if (port && ::write(port_pipe, &*port, sizeof *port) == sizeof *port) {
      char nothing = 0;
      std::ignore = ::read(life, &nothing, 1);
    }
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  }
  plain.join();
}

} // namespace

network_config::network_config(const std::optional<tls_options>& tls) {
  detail::add_types<caf::id_block::syncnorm,
                    caf::id_block::syncnorm_bench_network>(*this);
  use_network(*this);
  if (tls)
    use_tls(*this, *tls);
}

struct peer_processes::process {
  pid_t id = -1;
  int life = -1;
  int port = -1;
  int socket = -1;
};

peer_processes::peer_processes(int count,
                               const std::optional<tls_options>& tls) {
  for (int i = 0; i < count; ++i) {
    int life[2] = {};
    int port[2] = {};
    if (::pipe(life) != 0 || ::pipe(port) != 0)
      throw std::runtime_error{"bench/network: no pipe"};
    auto [here, there] = connect_plainly();
    auto id = ::fork();
    if (id == 0) {
      ::close(life[1]);
      ::close(here);
      live(tls, life[0], port[1], there);
      ::_exit(0);
    }
    ::close(life[0]);
    ::close(port[1]);
    ::close(there);
    processes_.push_back({id, life[1], port[0], here});
  }
}

peer_processes::~peer_processes() {
  for (const auto& x : processes_) {
    ::close(x.life);
    ::close(x.port);
    ::close(x.socket);
  }
  for (const auto& x : processes_)
    ::waitpid(x.id, nullptr, 0);
}

std::vector<caf::actor> peer_processes::connect(caf::actor_system& system) {
  std::vector<caf::actor> result;
  for (const auto& x : processes_) {
    std::uint16_t port = 0;
    if (::read(x.port, &port, sizeof port) != sizeof port)
      throw std::runtime_error{"bench/network: a process did not start"};
    auto actor = remote_handle<caf::actor>(system, "127.0.0.1", port);
    if (!actor)
      throw std::runtime_error{"bench/network: " + describe(actor.error())};
    result.push_back(*actor);
  }
  return result;
}

int peer_processes::socket() const {
  return processes_.front().socket;
}

} // namespace syncnorm::bench
