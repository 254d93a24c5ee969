// Two copies of a batch-norm layer, each in a thread of its own with half of
// the batch: training forward and backward, an error that both learn, and how
// they continue; then evaluation, the state and the gradients. Meant to be
// copied.

#include "syncnorm/batch_norm_layer.hpp"

#include <array>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

using namespace syncnorm;

namespace {

/// Two samples of one channel.
const auto layout =
    make_layout(dtype::float32, std::array<std::int64_t, 2>{2, 1});

/// One copy's part of the batch, and of its gradient.
struct part {
  std::array<float, 2> x, y, dy, dx;
};

// begin: step
/// A training step of one copy.
void train(batch_norm_layer& layer, part& mine) {
  auto tape = layer.forward({mine.x.data(), layout}, {mine.y.data(), layout});
  // The rest of the network, forward and backward, which sets dy.
  mine.dy = {mine.y[0], 0};
  layer.backward({mine.dy.data(), layout}, {mine.x.data(), layout}, tape,
                 {mine.dx.data(), layout});
}
// end: step

// begin: run
/// Runs `work(r)` for each copy r, in a thread of its own. Returns whether all
/// succeeded. If one throws, the others do not wait for it.
template <class F>
bool run_copies(const std::vector<batch_norm_layer*>& copies, F work) {
  std::vector<std::string> errors(copies.size());
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < copies.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        work(r);
      } catch (const std::exception& x) {
        errors[r] = x.what();
        fail_replica(copies[r], x.what());
      }
    });
  threads.clear(); // waits until all have returned
  auto good = true;
  for (const auto& x : errors)
    if (!x.empty()) {
      std::cout << x << '\n';
      good = false;
    }
  return good;
}
// end: run

void print(const std::vector<named_array>& arrays) {
  // begin: print
  for (const auto& array : arrays)
    std::visit(
        [&](auto values) {
          std::cout << array.name;
          for (auto x : values)
            std::cout << ' ' << x;
          std::cout << '\n';
        },
        array.values);
  // end: print
}

void run(caf::actor_system& system) {
  // begin: copies
  batch_norm_layer first{system, {.name = "bn1", .channels = 1}};
  auto second = first.clone();
  std::vector copies{&first, &second};
  execute_replication_callbacks(copies);
  // end: copies
  std::array<part, 2> parts{{{{1, 3}, {}, {}, {}}, {{5, 7}, {}, {}, {}}}};
  // begin: steps
  for (int step = 1; step <= 3; ++step) {
    auto good = run_copies(copies, [&](std::size_t r) {
      if (step == 2 && r == 1)
        throw std::runtime_error{"no more data"};
      train(*copies[r], parts[r]);
    });
    if (good)
      continue;
    release_replicas(copies);
    execute_replication_callbacks(copies);
  }
  // end: steps
  std::cout << "y " << parts[0].y[0] << ", dx " << parts[0].dx[0] << '\n';
  print(first.replica().gradients());
  // begin: evaluation
  first.replica().train(false);
  auto& mine = parts[0];
  first.forward({mine.x.data(), layout}, {mine.y.data(), layout});
  print(first.replica().state());
  // end: evaluation
}

} // namespace

void caf_main(caf::actor_system& system) {
  run(system);
}

CAF_MAIN(caf::id_block::syncnorm)
