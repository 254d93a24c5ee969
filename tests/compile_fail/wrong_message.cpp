// Compiles as it is. With WRONG_MESSAGE or WRONG_TAG it must not: a master's
// handle takes the messages of its interface only. Nor with BARE_NUMBER or
// BARE_NUMBERS, on CAF 0.17, which does not send every number to another node
// as it is; nor, for that reason, with LOOSE_FIELD. Nor with UNIT_REPLY, for
// which CAF would reply with nothing.

#include "syncnorm/compat.hpp"
#include "syncnorm/network.hpp"
#include "syncnorm/sync_master.hpp"

#include <span>
#include <tuple>
#include <vector>

int main() {
  using namespace syncnorm;
  using master_type = sync_master_actor<float_array, float_array>;
  auto use = [](caf::event_based_actor* self, const master_type& master) {
#if defined(WRONG_MESSAGE)
    double_array message{1.0};
#else
    float_array message{1.0F};
#endif
#if defined(WRONG_TAG)
    int tag = 1;
#else
    round_tag tag;
#endif
    std::ignore = run_master(self, master, message);
    std::ignore = detail::request(self, master, run_slave_atom_v, tag, message);
  };
  static_cast<void>(use);
#if defined(BARE_NUMBER)
  using number = double;
#elif defined(BARE_NUMBERS)
  using number = std::vector<double>;
#else
  using number = double_array;
#endif
  auto find = [](caf::actor_system& system) {
    std::ignore = remote_master<number, number>(system, "localhost", 1);
  };
  static_cast<void>(find);
#if defined(UNIT_REPLY)
  using reply = caf::unit_t;
#else
  using reply = bool;
#endif
  auto spawn = [](caf::actor_system& system) {
    auto none = [](std::span<identified<bool>>) {
      return std::vector<identified<reply>>{};
    };
    std::ignore = spawn_sync_master<bool, reply>(system, {.layer = "a"}, none);
  };
  static_cast<void>(spawn);
#if defined(LOOSE_FIELD)
  std::vector<float> several;
#else
  float several = 1;
#endif
  std::ignore = compat::field("several", several);
}
