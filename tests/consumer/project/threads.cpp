// Threads as participants: each waits for the others where an actor would
// continue. One gives up a round; all register again.

#include "syncnorm/sync_master.hpp"

#include <array>
#include <iostream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using namespace syncnorm;

std::vector<identified<double>> sum(std::span<identified<double>> messages) {
  double total = 0;
  for (const auto& x : messages)
    total += x.message;
  std::vector<identified<double>> replies;
  for (const auto& x : messages)
    replies.push_back({x.identifier, total});
  return replies;
}

// begin: slave
using owner_type = sync_master<double, double>;

// Returns what the last of two rounds gave, or why one failed.
std::string take_part(owner_type& master, std::int64_t identifier,
                      bool is_well) {
  auto pipe = master.register_slave(identifier);
  if (!pipe)
    return describe(pipe.error());
  double last = 0;
  for (int round = 1; round <= 2; ++round) {
    if (round == 2 && !is_well) {
      std::ignore = pipe->give_up("out of data"); // the others learn it at once
      return "gave up";
    }
    auto reply = pipe->run_slave(static_cast<double>(identifier)); // waits
    if (!reply)
      return describe(reply.error()); // register again
    last = *reply;
  }
  return std::to_string(last);
}
// end: slave

// begin: owner
std::string lead(owner_type& master) {
  for (int round = 1; round <= 2; ++round)
    if (auto reply = master.run_master(10.0); !reply)
      return describe(reply.error());
  return "done";
}
// end: owner

// begin: run
/// One generation of the owner and two slaves; returns what each of them says.
std::array<std::string, 3> run(owner_type& master, bool is_well) {
  std::array<std::string, 3> said;
  std::thread one{[&] { said[1] = take_part(master, 1, true); }};
  std::thread two{[&] { said[2] = take_part(master, 2, is_well); }};
  said[0] = lead(master);
  one.join();
  two.join();
  return said;
}

void caf_main(caf::actor_system& system) {
  owner_type master{system, {.layer = "bn1", .participants = 3}, sum};
  for (bool is_well : {false, true})
    for (const auto& x : run(master, is_well))
      std::cout << x << '\n';
}
// end: run

CAF_MAIN(caf::id_block::syncnorm)
