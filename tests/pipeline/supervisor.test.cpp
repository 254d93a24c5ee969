#include "supervisor.hpp"

#include "tests/pipeline/support.hpp"

#include <syncnorm/caf_error.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using namespace pipeline;
using namespace pipeline::test;

namespace {

struct supervised {
  caf::scoped_actor self;
  supervisor_actor keeper;

  supervised(caf::actor_system& system, stages owned)
      : self{system},
        keeper{system.spawn<supervisor, caf::detached>(std::move(owned), "")} {}

  ~supervised() {
    caf::anon_send_exit(keeper, caf::exit_reason::user_shutdown);
  }

  template <class... Ts>
  crew ask(const Ts&... xs) {
    crew result;
    syncnorm::detail::request(self, keeper, xs...)
        .receive([&](const crew& x) { result = x; },
                 [](const caf::error& x) { FAIL(syncnorm::describe(x)); });
    return result;
  }

  std::vector<double> read(const syncnorm::batch_norm_slave_actor& slave,
                           const std::string& array) {
    std::vector<double> result;
    syncnorm::detail::request(self, slave, syncnorm::read_state_atom_v, array)
        .receive(
            [&](const syncnorm::double_array& x) {
              result.assign(x.begin(), x.end());
            },
            [](const caf::error& x) { FAIL(syncnorm::describe(x)); });
    return result;
  }

  void write(const syncnorm::batch_norm_slave_actor& slave,
             const std::string& array, std::vector<double> values) {
    syncnorm::detail::request(self, slave, syncnorm::write_state_atom_v, array,
                              syncnorm::double_array{std::move(values)})
        .receive([] {},
                 [](const caf::error& x) { FAIL(syncnorm::describe(x)); });
  }
};

stages two_stages(caf::actor_system& system) {
  syncnorm::device cpu{syncnorm::device_type::cpu, 0};
  return make_stages(system, stream_options(1, true), {cpu, cpu}, true, "");
}

} // namespace

TEST_CASE_FIXTURE(pipeline_fixture, "after a failure all slaves go on from the "
                                    "one that has seen least, for the others' "
                                    "last batches are fed again") {
  supervised under{system, two_stages(system)};
  auto before = under.ask(crew_atom_v).slaves;
  // As if the second had learned from two batches more.
  under.write(before[0], "running_mean", {5});
  under.write(before[0], "num_batches_tracked", {4});
  under.write(before[1], "running_mean", {9});
  under.write(before[1], "num_batches_tracked", {6});
  auto after = under.ask(recover_atom_v);
  for (const auto& slave : after.slaves) {
    CHECK(under.read(slave, "running_mean") == std::vector<double>{5});
    CHECK(under.read(slave, "num_batches_tracked") == std::vector<double>{4});
  }
}
