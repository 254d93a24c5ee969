// Two processes take part in the same rounds. The first publishes the master
// and leads; the second holds replicas 1 and 2 behind a relay, so that one
// message per round crosses the network. Each replica sends its identifier plus
// one and gets the sum, 1 + 2 + 3; the first three are printed. Kill or stop
// one process, and the other learns within about 2 s whom it has lost. In two
// shells:
//
//   syncnorm-two-nodes serve 3          prints: port 34567, then the rounds
//   syncnorm-two-nodes join 34567
//
// Or in three shells: the second process holds replica 1 only, and publishes
// its relay under a name. The third process, with replica 2, finds the relay by
// that name:
//
//   syncnorm-two-nodes relay 34567      prints: port 45678; waits; the rounds
//   syncnorm-two-nodes below 45678
//
// Given a folder of certificates as the next argument (scripts/make-certs.sh),
// all speak TLS. The argument after it says which member of the folder a
// process is: by default, server for the first process and client for the
// others. A process between two others is both server and client, as the member
// node is.

#include "syncnorm/compat.hpp"
#include "syncnorm/master_directory.hpp"
#include "syncnorm/merge_tree.hpp"
#include "syncnorm/network.hpp"
#include "syncnorm/sync_master.hpp"
#include "syncnorm/sync_relay.hpp"

#include <charconv>
#include <chrono>
#include <iostream>
#include <limits>
#include <string>
#include <system_error>
#include <thread>

using namespace syncnorm;
using namespace std::chrono_literals;

// begin: config
struct config : caf::actor_system_config {
  config(const std::string& folder, const std::string& member) {
    compat::add_types<caf::id_block::syncnorm>(*this);
    use_network(*this, 2s);
    if (!folder.empty())
      use_tls(*this, {.certificate = folder + "/" + member + ".pem",
                      .key = folder + "/" + member + ".key",
                      .ca = folder + "/ca.pem"});
  }
};
// end: config

// begin: add
double_array add(std::span<identified<double_array>> parts) {
  return fold_tree(parts, [](double_array a, const double_array& b) {
    return double_array{a[0] + b[0]};
  });
}
// end: add

// Writes each line in one piece: two threads print.
void print(const std::string& line) {
  std::cout << line + "\n" << std::flush;
}

// A node without a certificate of the CA is refused before it can send a
// message, and this actor is notified.
caf::behavior print_refusals() {
  return {[](const std::string& line) { print(line); }};
}

int serve(caf::actor_system& system, long rounds) {
  // begin: master
  sync_master<double_array, double_array> master{
      system,
      {.layer = "sum", .deadline = 2s},
      sync_reduction<double_array, double_array>{
          .merge = add, .finish = [](double_array x) { return x; }}};
  // end: master
  // begin: publish
  auto refusals = system.spawn(print_refusals);
  auto port = publish_master(system, master.handle(), {.on_refusal = refusals});
  // end: publish
  if (!port) {
    print(describe(port.error()));
    return 1;
  }
  print("port " + std::to_string(*port));
  caf::scoped_actor self{system};
  while (master.nr_slaves() < 2)
    self->receive(caf::after(20ms) >> [] {});
  for (long round = 1; rounds == 0 || round <= rounds; ++round) {
    auto sum = master.run_master({1.0});
    if (!sum) {
      print("owner: " + describe(sum.error()));
      return 1;
    }
    if (round <= 3)
      print("owner: sum " + std::to_string((*sum)[0]));
  }
  return 0;
}

using master_actor = sync_master_actor<double_array, double_array>;

/// Takes part in rounds until the master is gone, as it is after its last
/// round.
/// @returns whether there was a round and nothing else went wrong.
bool run_slave(caf::actor_system& system, const master_actor& master,
               std::int64_t identifier) {
  auto name = "replica " + std::to_string(identifier) + ": ";
  auto pipe = register_slave_thread<double_array, double_array>(system, master,
                                                                identifier);
  if (!pipe) {
    print(name + describe(pipe.error()));
    return false;
  }
  for (int round = 1;; ++round) {
    auto sum = pipe->run_slave({static_cast<double>(identifier + 1)});
    if (!sum) {
      print(name + describe(sum.error()));
      return round > 1 && code_of(sum.error()) == errc::master_down;
    }
    if (round <= 3)
      print(name + "sum " + std::to_string((*sum)[0]));
  }
}

bool run_both(caf::actor_system& system, const master_actor& relay) {
  bool good = false;
  std::thread other{[&] { good = run_slave(system, relay, 2); }};
  auto mine = run_slave(system, relay, 1);
  other.join();
  return mine && good;
}

/// Waits until a slave has registered with the relay: the message of this
/// process would start the deadline of the others, and somebody has yet to
/// start their processes.
void await_slave(caf::actor_system& system, const master_actor& relay) {
  caf::scoped_actor self{system};
  for (std::uint64_t slaves = 0; slaves == 0;) {
    compat::request(self, relay, nr_slaves_atom_v)
        .receive([&](std::uint64_t n) { slaves = n; },
                 [](const caf::error& x) { print(describe(x)); });
    self->receive(caf::after(20ms) >> [] {});
  }
}

bool run_in_the_middle(caf::actor_system& system, const master_actor& relay) {
  // begin: directory
  auto directory = spawn_master_directory(system, {{"sum", relay}});
  auto port = publish_master(system, directory);
  // end: directory
  print(port ? "port " + std::to_string(*port) : describe(port.error()));
  if (port)
    await_slave(system, relay);
  auto good = port && run_slave(system, relay, 1);
  caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
  return good;
}

int join(caf::actor_system& system, std::uint16_t port, bool in_the_middle) {
  // begin: find
  auto master =
      remote_master<double_array, double_array>(system, "127.0.0.1", port);
  if (!master) {
    print(describe(master.error()));
    return 1;
  }
  auto relay = spawn_sync_relay<double_array, double_array>(
      system, *master, "sum", {.first = 1, .count = 2}, add);
  // end: find
  auto good = in_the_middle ? run_in_the_middle(system, relay)
                            : run_both(system, relay);
  caf::anon_send_exit(relay, caf::exit_reason::user_shutdown);
  return good ? 0 : 1;
}

int join_below(caf::actor_system& system, std::uint16_t port) {
  // begin: name
  auto relay = remote_master<double_array, double_array>(system, "127.0.0.1",
                                                         port, "sum");
  // end: name
  if (!relay) {
    print(describe(relay.error()));
    return 1;
  }
  return run_slave(system, *relay, 2) ? 0 : 1;
}

/// Parses ROUNDS or PORT.
long parse_number(const std::string& mode, const std::string& text) {
  auto serves = mode == "serve";
  auto least = serves ? 0L : 1L;
  auto most = serves ? std::numeric_limits<long>::max() : 65535L;
  long result = -1;
  const auto* end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, result);
  if (read.ec != std::errc{} || read.ptr != end || result < least
      || result > most)
    throw error{errc::invalid_argument,
                mode
                    + (serves ? ": ROUNDS: expected 0, for no end, or more"
                              : ": PORT: expected 1 to 65535")
                    + ", got \"" + text + "\""};
  return result;
}

int run(caf::actor_system& system, const std::string& mode, long number) {
  if (mode == "serve")
    return serve(system, number);
  auto port = static_cast<std::uint16_t>(number);
  return mode == "below" ? join_below(system, port)
                         : join(system, port, mode == "relay");
}

int main(int argc, char** argv) {
  std::string mode = argc >= 3 && argc <= 5 ? argv[1] : "";
  if (mode != "serve" && mode != "join" && mode != "relay" && mode != "below") {
    std::cerr << "usage: syncnorm-two-nodes serve ROUNDS | join PORT | "
                 "relay PORT | below PORT [CERTIFICATES [MEMBER]]\n";
    return 2;
  }
  // begin: types
  compat::init_types<caf::id_block::syncnorm>();
  // end: types
  std::string folder = argc > 3 ? argv[3] : "";
  std::string member = argc > 4          ? argv[4]
                       : mode == "serve" ? "server"
                                         : "client";
  try {
    auto number = parse_number(mode, argv[2]);
    config cfg{folder, member};
    caf::actor_system system{cfg};
    return run(system, mode, number);
  } catch (const error& x) {
    print(x.what());
    return 1;
  }
}
