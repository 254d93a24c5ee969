// Models with several inputs and outputs, and losses of their own on each copy,
// compared with libtorch's norms on the whole batch.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"
#include "syncnorm/nn/scatter_gather.hpp"

#include <stdexcept>
#include <tuple>

namespace syncnorm::nn::test {

namespace {

/// Two inputs, two outputs, a norm of each.
template <class Norm2d, class Norm1d>
struct Masked : torch::nn::Cloneable<Masked<Norm2d, Norm1d>> {
  Masked() {
    reset();
  }

  void reset() override {
    conv = this->register_module("conv", torch::nn::Conv2d(3, 4, 3));
    map_norm = this->register_module("map_norm", Norm2d(4));
    sum_norm = this->register_module("sum_norm", Norm1d(4));
  }

  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask) {
    auto map = map_norm->forward(conv->forward(x)) * mask;
    return {map, sum_norm->forward(map.sum({2, 3}))};
  }

  torch::nn::Conv2d conv{nullptr};
  Norm2d map_norm{nullptr};
  Norm1d sum_norm{nullptr};
};

using synchronized_net =
    Masked<SynchronizedBatchNorm2d, SynchronizedBatchNorm1d>;
using plain_net = Masked<torch::nn::BatchNorm2d, torch::nn::BatchNorm1d>;

/// A batch, and random cotangents of both outputs.
struct batch {
  explicit batch(std::int64_t samples)
      : x{torch::randn({samples, 3, 6, 5}, torch::kDouble)},
        mask{torch::rand({samples, 1, 4, 3}, torch::kDouble)},
        dmap{torch::randn({samples, 4, 4, 3}, torch::kDouble)},
        dsums{torch::randn({samples, 4}, torch::kDouble)} {}

  Tensor x;
  Tensor mask;
  Tensor dmap;
  Tensor dsums;
};

Tensor loss_of(const std::tuple<Tensor, Tensor>& out, const Tensor& dmap,
               const Tensor& dsums) {
  return (std::get<0>(out) * dmap).sum() + (std::get<1>(out) * dsums).sum();
}

struct both_nets {
  both_nets() {
    plain->to(torch::kDouble);
    net->to(torch::kDouble);
    torch::NoGradGuard no_grad;
    auto from = plain->parameters();
    auto to = net->parameters();
    for (std::size_t i = 0; i < from.size(); ++i)
      to[i].copy_(from[i]);
  }

  void compare() const {
    auto wanted = plain->named_parameters();
    for (const auto& entry : net->named_parameters()) {
      INFO(entry.key());
      CHECK(distance(wanted[entry.key()].grad(), entry.value().grad())
            <= 1e-10);
    }
    auto buffers = plain->named_buffers();
    for (const auto& entry : net->named_buffers()) {
      INFO(entry.key());
      CHECK(distance(buffers[entry.key()], entry.value()) <= 1e-10);
    }
  }

  actors env;
  std::shared_ptr<plain_net> plain = std::make_shared<plain_net>();
  std::shared_ptr<synchronized_net> net = std::make_shared<synchronized_net>();
};

TEST_CASE("a model of two inputs and two outputs on three copies equals one "
          "device, outputs and gradients") {
  both_nets nets;
  DataParallelWithCallback parallel{nets.env.system, nets.net,
                                    on_patient_cpus(3)};
  auto devices = parallel->options.devices();
  batch b{7};
  b.x.requires_grad_();
  auto whole = b.x.detach().clone().requires_grad_();
  for (int step = 0; step < 2; ++step) {
    auto xs = scatter(b.x, devices);
    auto masks = scatter(b.mask, devices);
    std::vector<Tensor> maps(3);
    std::vector<Tensor> sums(3);
    parallel->parallel_apply(3, [&](torch::nn::Module& copy, std::size_t r) {
      auto& mine = dynamic_cast<synchronized_net&>(copy);
      std::tie(maps[r], sums[r]) = mine.forward(xs[r], masks[r]);
    });
    auto got = std::tuple{gather(maps, torch::kCPU), gather(sums, torch::kCPU)};
    auto expected = nets.plain->forward(whole, b.mask);
    CHECK(distance(std::get<0>(expected), std::get<0>(got)) <= 1e-10);
    CHECK(distance(std::get<1>(expected), std::get<1>(got)) <= 1e-10);
    loss_of(got, b.dmap, b.dsums).backward();
    loss_of(expected, b.dmap, b.dsums).backward();
    CHECK(distance(whole.grad(), b.x.grad()) <= 1e-10);
    nets.compare();
  }
}

TEST_CASE("losses that each copy makes of its own outputs add up to one "
          "device's, on fewer copies than devices as well") {
  both_nets nets;
  DataParallelWithCallback parallel{nets.env.system, nets.net,
                                    on_patient_cpus(4)};
  for (std::size_t copies : {4, 2, 1}) {
    batch b{9};
    auto parts = [&](const Tensor& x) { return scatter(x, cpu_times(copies)); };
    auto xs = parts(b.x);
    auto masks = parts(b.mask);
    auto dmaps = parts(b.dmap);
    auto dsums = parts(b.dsums);
    std::vector<Tensor> losses(copies);
    parallel->parallel_apply(copies, [&](torch::nn::Module& copy,
                                         std::size_t r) {
      auto& mine = dynamic_cast<synchronized_net&>(copy);
      losses[r] = loss_of(mine.forward(xs[r], masks[r]), dmaps[r], dsums[r]);
    });
    auto expected = loss_of(nets.plain->forward(b.x, b.mask), b.dmap, b.dsums);
    auto got = gather(losses, torch::kCPU).sum();
    CHECK(distance(expected, got) <= 1e-10);
    expected.backward();
    got.backward();
    nets.compare();
  }
}

TEST_CASE("what the function throws for one copy is what the caller gets; the "
          "object works again") {
  both_nets nets;
  DataParallelWithCallback parallel{nets.env.system, nets.net,
                                    on_patient_cpus(2)};
  batch b{4};
  auto xs = scatter(b.x, cpu_times(2));
  auto masks = scatter(b.mask, cpu_times(2));
  auto run = [&](bool fail) {
    parallel->parallel_apply(2, [&](torch::nn::Module& copy, std::size_t r) {
      if (fail && r == 1)
        throw std::domain_error{"no mask"};
      std::ignore =
          dynamic_cast<synchronized_net&>(copy).forward(xs[r], masks[r]);
    });
  };
  CHECK_THROWS_WITH_AS(run(true), "no mask", std::domain_error);
  run(false);
  CHECK(nets.net->map_norm->num_batches_tracked.item<std::int64_t>() >= 1);
}

TEST_CASE("a model that does not make one tensor of one is refused by forward, "
          "and so are no function and a wrong number of copies") {
  both_nets nets;
  DataParallelWithCallback parallel{nets.env.system, nets.net,
                                    on_patient_cpus(2)};
  batch b{4};
  std::string text;
  auto refuses = [&](const auto& f) {
    return code_of(f, &text) == errc::invalid_argument;
  };
  CHECK(refuses([&] { parallel->forward(b.x); }));
  CHECK(contains(text, "forward: expected a module that makes one tensor of "
                       "one, or parallel_apply with a function, got "));
  CHECK(contains(text, "Masked"));
  auto nothing = [](torch::nn::Module&, std::size_t) { FAIL("called"); };
  CHECK(refuses([&] { parallel->parallel_apply(0, nothing); }));
  CHECK(contains(text, "n: expected 1 to 2, at most one for each device, got "
                       "0"));
  CHECK(refuses([&] { parallel->parallel_apply(3, nothing); }));
  CHECK(refuses([&] { parallel->parallel_apply(2, nullptr); }));
  CHECK(contains(text, "f: expected a function, got null"));
}

} // namespace

} // namespace syncnorm::nn::test
