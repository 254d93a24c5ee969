// CAF 1.x only: slave actors in a flow.

#include "tests/actors/stages.hpp"

#include <caf/cow_tuple.hpp>
#include <caf/scheduled_actor/flow.hpp>

#include <utility>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

// begin: flow
/// Runs `xs` through a slave, one after the other, as a flow.
void run_flow(caf::event_based_actor* self, std::vector<shared_tensor> xs,
              const batch_norm_slave_actor& slave, future_outputs done) {
  self->make_observable()
      .from_container(std::move(xs))
      .concat_map([self, slave](const shared_tensor& x) {
        return self->mail(forward_atom_v, x)
            .request(slave, caf::infinite)
            .as_observable();
      })
      .map([](const caf::cow_tuple<shared_tensor, std::uint64_t>& answer) {
        return std::get<0>(answer.data());
      })
      .to_vector()
      .do_on_error(
          [done](const caf::error& reason) { std::ignore = done->put(reason); })
      .for_each([done](const caf::cow_vector<shared_tensor>& ys) {
        std::ignore = done->put(ys.std());
      });
}
// end: flow

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "a flow takes slave actors, and its order is "
                                 "kept") {
  fed_stages net{system};
  std::vector<future_outputs> futures;
  for (std::size_t r = 0; r < fed_stages::copies; ++r) {
    auto done = std::make_shared<future_result<outputs>>();
    futures.push_back(done);
    system.spawn([xs = net.messages(r), slave = net.stages[r]->slave(),
                  done](caf::event_based_actor* self) {
      run_flow(self, xs, slave, done);
    });
  }
  for (std::size_t r = 0; r < fed_stages::copies; ++r) {
    auto ys = futures[r]->get();
    REQUIRE(static_cast<bool>(ys));
    net.check(r, *ys);
  }
}

TEST_CASE_FIXTURE(layer_fixture, "an error of a slave actor ends the flow with "
                                 "it") {
  fed_stages net{system};
  auto done = std::make_shared<future_result<outputs>>();
  std::vector<std::int64_t> sizes{2, 4};
  auto wide = std::make_shared<tensor>(make_layout(dtype::float64, sizes));
  system.spawn([x = shared_tensor{wide->view(), wide},
                slave = net.stages[1]->slave(),
                done](caf::event_based_actor* self) {
    run_flow(self, {x}, slave, done);
  });
  auto ys = done->get();
  REQUIRE(!ys);
  CHECK(code_of(ys.error()) == errc::shape_mismatch);
}
