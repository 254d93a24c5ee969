// Two copies of a layer, in a thread each, normalize half of a batch each by
// the mean and the variance of the whole batch. Prints -1.34164 1.34164.

// begin: program
#include <syncnorm/batch_norm_layer.hpp>

#include <array>
#include <future>
#include <iostream>
#include <vector>

using namespace syncnorm;

void caf_main(caf::actor_system& system) {
  batch_norm_layer first{system, {.name = "bn1", .channels = 1}};
  auto second = first.clone();
  std::vector copies{&first, &second};
  execute_replication_callbacks(copies);     // a master, two participants
  float x[2][2] = {{1, 3}, {5, 7}}, y[2][2]; // half of the batch for each
  auto layout = make_layout(dtype::float32, std::array<std::int64_t, 2>{2, 1});
  auto forward = [&](int r) {
    copies[r]->forward({x[r], layout}, {y[r], layout});
  };
  auto other = std::async(std::launch::async, forward, 1);
  forward(0); // waits for the other copy
  other.get();
  std::cout << y[0][0] << ' ' << y[1][1] << '\n'; // -1.34164 1.34164
}

CAF_MAIN(caf::id_block::syncnorm)
// end: program
