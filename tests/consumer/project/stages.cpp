// Two copies of a layer as slave actors: docs/pipeline.md goes through it.

// begin: needs
#include <syncnorm/batch_norm_stage.hpp>
#include <syncnorm/caf_error.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

using namespace syncnorm;

// The first value of what a slave answers.
template <class Response>
double first_value(Response response) {
  double result = 0;
  std::move(response).receive(
      [&](const shared_tensor& y, std::uint64_t) {
        result = *static_cast<const float*>(y.view().data());
      },
      [](const caf::error& reason) {
        std::cerr << describe(reason) << '\n';
        std::exit(EXIT_FAILURE);
      });
  return result;
}
// end: needs

void caf_main(caf::actor_system& system) {
  // begin: stages
  // begin: copies
  batch_norm_options options{.name = "features", .channels = 3};
  std::vector<std::unique_ptr<batch_norm_stage>> stages;
  for (int copy = 0; copy < 2; ++copy)
    stages.push_back(std::make_unique<batch_norm_stage>(system, options));
  execute_replication_callbacks(stages);
  // end: copies

  // Memory of your own, which the tensor keeps: 4 records of 3 features.
  auto memory = std::make_shared<std::vector<float>>(
      std::vector<float>{1, 1, 1, 3, 3, 3, 5, 5, 5, 7, 7, 7});
  auto layout = make_layout(dtype::float32, std::array<std::int64_t, 2>{4, 3});
  shared_tensor batch{const_tensor_view{memory->data(), layout}, memory};

  // Ask all copies before waiting for an answer: each waits for the others.
  caf::scoped_actor self{system};
  // begin: ask
  auto upper = self->request(stages[0]->slave(), caf::infinite, forward_atom_v,
                             batch.samples(0, 2));
  auto lower = self->request(stages[1]->slave(), caf::infinite, forward_atom_v,
                             batch.samples(2, 2));
  // end: ask
  auto first = first_value(std::move(upper)); // (1 - 4) / sqrt(5)
  auto third = first_value(std::move(lower)); // (5 - 4) / sqrt(5)

  // This ends the slave actors. Without it, they live as long as the stages,
  // and the actor system waits for them.
  release_replicas(stages);
  // end: stages
  if (std::abs(first + 3 / std::sqrt(5.0)) > 1e-4
      || std::abs(third - 1 / std::sqrt(5.0)) > 1e-4)
    std::exit(EXIT_FAILURE);
}

CAF_MAIN(caf::id_block::syncnorm)
