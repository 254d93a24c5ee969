#include <syncnorm/sync_master.hpp>

#include <cstdlib>

using namespace syncnorm;

void caf_main(caf::actor_system& system) {
  sync_master<double, double> master{
      system, {.layer = "bn1"}, [](std::span<identified<double>> messages) {
        return std::vector<identified<double>>(messages.begin(),
                                               messages.end());
      }};
  auto reply = master.run_master(42);
  if (!reply || *reply != 42)
    std::exit(EXIT_FAILURE);
}

CAF_MAIN(caf::id_block::syncnorm)
