#include "bench/trainer/plain.hpp"

#include "trainer/input/batch.hpp"
#include "trainer/model/network.hpp"

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <span>
#include <utility>

namespace syncnorm::bench {

using namespace train;

struct plain_loop::implementation {
  dataset_ptr data;
  network_ptr model;
  torch::optim::SGD optimizer;
  std::size_t position = 0;

  explicit implementation(dataset_ptr shared)
      : data{std::move(shared)},
        model{make_network(model_kind::cnn, norm_kind::local,
                           data->training.shape)},
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
  auto n = static_cast<std::int64_t>(batch);
  auto images = torch::empty({n, static_cast<std::int64_t>(part.shape.channels),
                              static_cast<std::int64_t>(part.shape.height),
                              static_cast<std::int64_t>(part.shape.width)});
  auto labels = torch::empty({n}, torch::kInt64);
  std::span pixels{images.data_ptr<float>(), batch * part.shape.size()};
  for (std::size_t i = 0; i < batch; ++i) {
    auto sample = self.position + i;
    normalize_image(*self.data, part, sample,
                    shift_of(1, 1, 0, static_cast<std::uint32_t>(sample)),
                    pixels.subspan(i * part.shape.size(), part.shape.size()));
    labels.data_ptr<std::int64_t>()[i] = part.labels[sample];
  }
  self.position += batch;
  self.optimizer.zero_grad();
  auto loss =
      torch::nn::functional::cross_entropy(self.model->forward(images), labels);
  loss.backward();
  self.optimizer.step();
  (void) loss.item<float>();
}

} // namespace syncnorm::bench
