// Compiles as it is. With WRONG_MESSAGE it must not: a master's handle takes
// the messages of its interface only.

#include "syncnorm/sync_master.hpp"

int main() {
  using namespace syncnorm;
  using master_type = sync_master_actor<float_array, float_array>;
  auto use = [](caf::event_based_actor* self, const master_type& master) {
#if defined(WRONG_MESSAGE)
    return run_master(self, master, double_array{1.0});
#elif defined(WRONG_TAG)
    return detail::request(self, master, run_slave_atom_v, 1, float_array{1});
#else
    return run_master(self, master, float_array{1.0F});
#endif
  };
  static_cast<void>(use);
}
