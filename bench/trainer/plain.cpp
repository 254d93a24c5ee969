#include "bench/trainer/plain.hpp"

#include "trainer/input/batch.hpp"
#include "trainer/model/network.hpp"
#include "trainer/plan/settings.hpp"

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <barrier>
#include <cstdint>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace syncnorm::bench {

using namespace train;

namespace {

/// The cnn with the weights that result from the trainer's seed.
network_ptr make_model(const dataset& data) {
  auto model =
      make_network(model_kind::cnn, norm_kind::local, data.training.shape);
  initialize(*model, settings{}.seed);
  return model;
}

/// The mean loss on `samples`, training images moved as in epoch 0.
torch::Tensor loss_of(network& model, const dataset& data,
                      std::span<const std::uint32_t> samples) {
  const settings usual;
  const auto& part = data.training;
  auto n = static_cast<std::int64_t>(samples.size());
  auto images = torch::empty({n, static_cast<std::int64_t>(part.shape.channels),
                              static_cast<std::int64_t>(part.shape.height),
                              static_cast<std::int64_t>(part.shape.width)});
  auto labels = torch::empty({n}, torch::kInt64);
  auto size = part.shape.size();
  std::span pixels{images.data_ptr<float>(), samples.size() * size};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    normalize_image(data, part, samples[i],
                    shift_of(usual.shift, usual.seed, 0, samples[i]),
                    pixels.subspan(i * size, size));
    labels.data_ptr<std::int64_t>()[i] = part.labels[samples[i]];
  }
  return torch::nn::functional::cross_entropy(model.forward(images), labels);
}

} // namespace

struct plain_loop::implementation {
  dataset_ptr data;
  network_ptr model;
  torch::optim::SGD optimizer;
  std::size_t position = 0;

  explicit implementation(dataset_ptr shared)
      : data{std::move(shared)},
        model{make_model(*data)},
        optimizer{model->parameters(),
                  torch::optim::SGDOptions(0.01).momentum(0.9)} {}
};

plain_loop::plain_loop(dataset_ptr data)
    : self_{std::make_unique<implementation>(std::move(data))} {}

plain_loop::~plain_loop() = default;

void plain_loop::step(std::size_t batch) {
  at::set_num_threads(1);
  auto& self = *self_;
  const auto& part = self.data->training;
  if (self.position + batch > part.size())
    self.position = 0;
  std::vector<std::uint32_t> samples(batch);
  std::iota(samples.begin(), samples.end(),
            static_cast<std::uint32_t>(self.position));
  self.position += batch;
  self.optimizer.zero_grad();
  auto loss = loss_of(*self.model, *self.data, samples);
  loss.backward();
  self.optimizer.step();
  (void) loss.item<float>();
}

double plain_loss(const dataset_ptr& data,
                  std::span<const std::uint32_t> samples) {
  return loss_of(*make_model(*data), *data, samples).item<double>();
}

// libtorch and oneDNN cache preparations per thread, so every loop has the same
// thread for its whole life.
struct plain_team::implementation {
  std::barrier<> start;
  std::barrier<> end;
  int steps = 0;
  std::size_t batch = 0;
  std::vector<std::jthread> threads;

  implementation(const dataset_ptr& data, std::size_t loops)
      : start{static_cast<std::ptrdiff_t>(loops) + 1},
        end{static_cast<std::ptrdiff_t>(loops) + 1} {
    for (std::size_t i = 0; i < loops; ++i)
      threads.emplace_back([this, data] { work(data); });
  }

  void work(const dataset_ptr& data) {
    plain_loop loop{data};
    for (;;) {
      start.arrive_and_wait();
      if (steps == 0)
        return;
      for (int i = 0; i < steps; ++i)
        loop.step(batch);
      end.arrive_and_wait();
    }
  }
};

plain_team::plain_team(dataset_ptr data, std::size_t loops)
    : self_{std::make_unique<implementation>(data, loops)} {}

plain_team::~plain_team() {
  self_->steps = 0;
  self_->start.arrive_and_wait();
}

void plain_team::run(int steps, std::size_t batch) {
  self_->steps = steps;
  self_->batch = batch;
  self_->start.arrive_and_wait();
  self_->end.arrive_and_wait();
}

} // namespace syncnorm::bench
