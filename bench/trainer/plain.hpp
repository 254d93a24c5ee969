#pragma once

#include "trainer/input/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace syncnorm::bench {

/// The trainer's cnn as a plain libtorch program trains it: one thread,
/// libtorch's own batch norm and torch::optim::SGD, no actors.
class plain_loop {
public:
  explicit plain_loop(train::dataset_ptr data);
  ~plain_loop();

  /// One step on `batch` images.
  void step(std::size_t batch);

private:
  struct implementation;
  std::unique_ptr<implementation> self_;
};

/// The mean loss of a plain libtorch program on those training images, with the
/// weights that the trainer's replicas begin with.
double plain_loss(const train::dataset_ptr& data,
                  std::span<const std::uint32_t> samples);

/// Several independent plain loops in parallel, one thread each: what the
/// machine itself allows.
class plain_team {
public:
  plain_team(train::dataset_ptr data, std::size_t loops);
  ~plain_team();

  /// Lets every loop take `steps` steps on `batch` images, and waits for all.
  void run(int steps, std::size_t batch);

private:
  struct implementation;
  std::unique_ptr<implementation> self_;
};

} // namespace syncnorm::bench
