// Shows the ways to port code for Python's synchronized batch norms, and that
// each way gives a layer the statistics of the whole batch. Prints:
//
//   every way gives the running mean of the whole batch

#include "syncnorm/master_directory.hpp"
#include "syncnorm/network.hpp"
#include "syncnorm/nn/convert_model.hpp"
#include "syncnorm/nn/data_parallel_with_callback.hpp"
#include "syncnorm/nn/scatter_gather.hpp"
#include "syncnorm/nn/synchronize.hpp"
#include "syncnorm/nn/synchronize_apart.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"
#include "syncnorm/sync_master.hpp"

#include <torch/torch.h>

#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace syncnorm;

// begin: model
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() {
    reset();
  }

  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(1, 4, 3));
    bn = register_module("bn", nn::SynchronizedBatchNorm2d(4));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(bn(conv(x)));
  }

  torch::nn::Conv2d conv{nullptr};
  nn::SynchronizedBatchNorm2d bn{nullptr};
};
TORCH_MODULE(Net);
// end: model

// Any loss.
torch::Tensor criterion(const torch::Tensor& y) {
  return y.square().mean();
}

torch::Tensor train_data_parallel(caf::actor_system& system, Net net,
                                  const torch::Tensor& x) {
  // begin: data_parallel
  nn::DataParallelWithCallback model{
      system, net,
      nn::DataParallelWithCallbackOptions{}.devices(
          {torch::kCPU, torch::kCPU})};
  auto loss = criterion(model->forward(x));
  loss.backward();
  // end: data_parallel
  return net->bn->running_mean;
}

torch::Tensor train_with_targets(caf::actor_system& system, Net net,
                                 const torch::Tensor& x,
                                 const torch::Tensor& target) {
  nn::DataParallelWithCallback model{
      system, net,
      nn::DataParallelWithCallbackOptions{}.devices(
          {torch::kCPU, torch::kCPU})};
  // begin: targets
  auto devices = model->options.devices();
  auto xs = nn::scatter(x, devices);
  auto targets = nn::scatter(target, devices);
  std::vector<torch::Tensor> losses(devices.size());
  auto run = [&](torch::nn::Module& copy, std::size_t r) {
    auto y = copy.as<Net>()->forward(xs[r]);
    losses[r] = torch::mse_loss(y, targets[r], torch::Reduction::Sum);
  };
  model->parallel_apply(devices.size(), run);
  nn::gather(losses, devices[0]).sum().backward();
  // end: targets
  return net->bn->running_mean;
}

// begin: plain
torch::nn::Sequential plain_model() {
  return torch::nn::Sequential(torch::nn::Conv2d(1, 4, 3),
                               torch::nn::BatchNorm2d(4), torch::nn::ReLU());
}
// end: plain

torch::Tensor train_converted(caf::actor_system& system,
                              const torch::nn::Sequential& plain,
                              const torch::Tensor& x) {
  // begin: convert
  auto net = nn::convert_model(plain);
  nn::DataParallelWithCallback model{
      system, net,
      nn::DataParallelWithCallbackOptions{}.devices(
          {torch::kCPU, torch::kCPU})};
  // end: convert
  criterion(model->forward(x)).backward();
  return net->named_buffers()["1.running_mean"];
}

torch::Tensor train_replicas(caf::actor_system& system, const Net& net,
                             const torch::Tensor& batch) {
  auto x = batch.chunk(2);
  // begin: synchronize
  std::vector<std::shared_ptr<NetImpl>> copies{
      net.ptr(), std::dynamic_pointer_cast<NetImpl>(net->clone())};
  nn::synchronize(system, copies);
  std::vector<std::future<void>> replicas;
  for (std::size_t r = 0; r < copies.size(); ++r)
    replicas.push_back(std::async(std::launch::async, [&, r] {
      auto share = static_cast<double>(x[r].size(0)) / batch.size(0);
      auto loss = criterion(copies[r]->forward(x[r])) * share;
      loss.backward();
    }));
  for (auto& replica : replicas)
    replica.get(); // rethrows what its thread has thrown
  auto mine = net->parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) // gradients of the whole batch
    mine[i].mutable_grad() += copies[1]->parameters()[i].grad();
  // end: synchronize
  return copies[1]->bn->running_mean;
}

template <class T>
T value_of(const caf::expected<T>& x) {
  if (x)
    return *x;
  std::cerr << describe(x.error()) << '\n';
  std::exit(EXIT_FAILURE);
}

// What a process needs to connect to others.
struct network_config : caf::actor_system_config {
  network_config() {
    compat::add_types<caf::id_block::syncnorm>(*this);
    use_network(*this);
  }
};

// Two actor systems, as if each were in a process of its own.
torch::Tensor train_apart(Net net, const torch::Tensor& batch) {
  network_config config, other_config;
  caf::actor_system system{config}, other{other_config};
  auto x = batch.chunk(2);
  // begin: lead
  // In the first process.
  auto masters = nn::lead_copies(system, net.ptr(), 2);
  std::vector<named_master> named;
  for (const auto& [path, master] : masters)
    named.emplace_back(path, master);
  auto directory = spawn_master_directory(system, named);
  auto port = value_of(publish_master(system, directory));
  // end: lead
  Net copy{std::dynamic_pointer_cast<NetImpl>(net->clone())};
  // The round waits for the other copy.
  std::thread first{[&] { criterion(net->forward(x[0])).backward(); }};
  // begin: follow
  // In the second process, for each synchronized layer.
  layer_masters found;
  for (const std::string path : {"bn"})
    found.push_back(
        {path, value_of(remote_master<batch_norm_message, batch_norm_reply>(
                   other, "127.0.0.1", port, path))});
  nn::follow_copies(other, copy.ptr(), 1, found);
  // end: follow
  criterion(copy->forward(x[1])).backward();
  first.join();
  // Before the actor systems end: each waits for the actors that live on it.
  nn::desynchronize(std::vector{net.ptr(), copy.ptr()});
  caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
  return copy->bn->running_mean;
}

torch::Tensor clamped_mean(const torch::Tensor& x) {
  // begin: clamp
  nn::SynchronizedBatchNorm2d bn{
      nn::SynchronizedBatchNorm2dOptions{4}.eps_mode(eps_mode::clamp)};
  // end: clamp
  bn->forward(x);
  return bn->running_mean;
}

void require_equal(const torch::Tensor& got, const torch::Tensor& expected,
                   const std::string& way) {
  if (torch::allclose(got, expected, 1e-5, 1e-6))
    return;
  std::cerr << way << ": expected " << expected << ", got " << got << '\n';
  std::exit(EXIT_FAILURE);
}

void caf_main(caf::actor_system& system) {
  torch::manual_seed(1);
  auto x = torch::randn({6, 1, 8, 8}) * 2 + 3;
  Net net;
  auto expected = 0.1 * net->conv(x).mean({0, 2, 3});
  auto fresh = [&] {
    return Net{std::dynamic_pointer_cast<NetImpl>(net->clone())};
  };
  require_equal(train_data_parallel(system, fresh(), x), expected,
                "data-parallel");
  auto target = torch::randn({6, 4, 6, 6});
  require_equal(train_with_targets(system, fresh(), x, target), expected,
                "parallel_apply");
  require_equal(train_replicas(system, fresh(), x), expected, "synchronize");
  require_equal(train_apart(fresh(), x), expected, "follow_copies");
  auto plain = plain_model();
  auto its_mean =
      0.1 * plain->ptr<torch::nn::Conv2dImpl>(0)->forward(x).mean({0, 2, 3});
  require_equal(train_converted(system, plain, x), its_mean, "convert_model");
  require_equal(clamped_mean(net->conv(x)), expected, "clamp");
  std::cout << "every way gives the running mean of the whole batch\n";
}

CAF_MAIN(caf::io::middleman, caf::id_block::syncnorm)
