// A user's own libtorch program: two copies of a net, each in a thread of its
// own, take a step on half of a batch each, and get the weights of one net that
// has the whole batch.

#include "syncnorm/message_types.hpp"
#include "syncnorm/nn/convert_model.hpp"
#include "syncnorm/nn/synchronize.hpp"

#include <torch/torch.h>

#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <vector>

using namespace syncnorm;
using net = std::shared_ptr<torch::nn::SequentialImpl>;

net plain_net() {
  return torch::nn::Sequential(torch::nn::Conv2d(1, 4, 3),
                               torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                               torch::nn::Flatten(),
                               torch::nn::Linear(4 * 6 * 6, 1))
      .ptr();
}

net copy_of(const net& x) {
  return std::dynamic_pointer_cast<torch::nn::SequentialImpl>(x->clone());
}

torch::Tensor sum_of_squares(const net& model, const torch::Tensor& x) {
  return model->forward(x).square().sum();
}

void step(torch::nn::Module& model) {
  torch::optim::SGD{model.parameters(), 1e-3}.step();
}

void step_together(caf::actor_system& system, const std::vector<net>& copies,
                   const torch::Tensor& x) {
  nn::synchronize(system, copies);
  auto parts = x.chunk(static_cast<std::int64_t>(copies.size()));
  std::vector<std::future<void>> replicas;
  for (std::size_t r = 0; r < copies.size(); ++r)
    replicas.push_back(std::async(std::launch::async, [&, r] {
      sum_of_squares(copies[r], parts[r]).backward();
    }));
  for (auto& replica : replicas)
    replica.get(); // rethrows what its thread has thrown
  auto first = copies[0]->parameters();
  for (std::size_t r = 1; r < copies.size(); ++r)
    for (std::size_t i = 0; i < first.size(); ++i)
      first[i].mutable_grad() += copies[r]->parameters()[i].grad();
  step(*copies[0]);
}

void caf_main(caf::actor_system& system) {
  torch::manual_seed(1);
  auto x = torch::randn({6, 1, 8, 8}) * 2 + 3;
  auto alone = plain_net();
  auto first = nn::convert_model(copy_of(alone));
  sum_of_squares(alone, x).backward();
  step(*alone);
  step_together(system, {first, copy_of(first)}, x);
  for (const auto& item : alone->named_parameters()) {
    auto got = first->named_parameters()[item.key()];
    if (torch::allclose(got, item.value(), 1e-4, 1e-5))
      continue;
    std::cerr << item.key() << ": expected " << item.value() << ", got " << got
              << '\n';
    std::exit(EXIT_FAILURE);
  }
  std::cout << "two halves make the step of the whole batch\n";
}

CAF_MAIN(caf::id_block::syncnorm)
