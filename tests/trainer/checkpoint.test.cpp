#include "trainer/model/archive.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/model/network.hpp"

#include "trainer/scratch_folder.hpp"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <cstdio>

// libtorch's logging headers define CHECK, as doctest does.
#undef CHECK
#include <doctest/doctest.h>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

const dataset_ptr digits = load_dataset(SYNCNORM_DIGITS);

/// The cnn as somebody would write it who knows libtorch only.
struct plain_cnn : torch::nn::Module {
  torch::nn::Conv2d conv1 = conv("conv1", 1, 16);
  torch::nn::Conv2d conv2 = conv("conv2", 16, 32);
  torch::nn::Conv2d conv3 = conv("conv3", 32, 64);
  torch::nn::BatchNorm2d norm1 = norm("norm1", 16);
  torch::nn::BatchNorm2d norm2 = norm("norm2", 32);
  torch::nn::BatchNorm2d norm3 = norm("norm3", 64);
  torch::nn::Linear output =
      register_module("output", torch::nn::Linear{256, 10});

  torch::nn::Conv2d conv(const std::string& name, int from, int to) {
    return register_module(
        name,
        torch::nn::Conv2d{
            torch::nn::Conv2dOptions(from, to, 3).padding(1).bias(false)});
  }

  torch::nn::BatchNorm2d norm(const std::string& name, int channels) {
    return register_module(name, torch::nn::BatchNorm2d{channels});
  }

  torch::Tensor forward(torch::Tensor x) {
    x = norm1->forward(conv1->forward(x)).relu();
    x = norm2->forward(conv2->forward(x)).relu();
    x = norm3->forward(conv3->forward(torch::max_pool2d(x, 2))).relu();
    x = torch::adaptive_avg_pool2d(torch::max_pool2d(x, 2), {2, 2});
    return output->forward(x.flatten(1));
  }
};

/// An engine that has taken a step, so that no state has its first value.
engine trained(const settings& options) {
  engine machine{options, device{}, digits};
  std::vector<std::uint32_t> samples{1, 2, 3, 4, 5, 6, 7, 8};
  auto part = machine.differentiate(samples, samples.size(), 0);
  machine.descend({0.1, 0.9, 0}, part.gradient);
  return machine;
}

/// What plain libtorch reads from the checkpoint of `machine`.
std::shared_ptr<plain_cnn> loaded_by_libtorch(engine& machine) {
  scratch_folder folder;
  auto file = folder / "model.pt";
  auto content = machine.save("");
  write_bytes(file, {content.begin(), content.end()});
  auto model = std::make_shared<plain_cnn>();
  torch::load(model, file.string());
  return model;
}

torch::Tensor held_out_images(std::size_t count) {
  const auto& part = digits->held_out;
  auto images = torch::empty({static_cast<std::int64_t>(count), 1, 8, 8});
  for (std::size_t i = 0; i < count * 64; ++i)
    images.data_ptr<float>()[i] = static_cast<float>(
        (part.pixels[i] - digits->mean[0]) / digits->deviation[0]);
  return images;
}

} // namespace

TEST_CASE("a checkpoint brings back weights, statistics and optimizer") {
  for (auto precision : {precision_kind::f32, precision_kind::f64}) {
    settings options;
    options.precision = precision;
    auto machine = trained(options);
    options.seed = 2;
    engine other{options, device{}, digits};
    CHECK(other.hash() != machine.hash());
    auto content = machine.save("state of the run");
    other.load(content, "file");
    CHECK(other.hash() == machine.hash());
    CHECK(read_state(content, "file") == "state of the run");
    CHECK(other.save("state of the run") == content);
  }
}

TEST_CASE("plain libtorch loads a checkpoint under BatchNorm's names, and "
          "computes the same") {
  auto machine = trained({});
  auto model = loaded_by_libtorch(machine);
  CHECK(model->norm1->num_batches_tracked.item<std::int64_t>() == 1);
  model->eval();
  torch::NoGradGuard no_grad;
  auto scores = model->forward(held_out_images(360)).log_softmax(1);
  double loss = 0;
  for (std::int64_t i = 0; i < 360; ++i)
    loss -= scores[i][digits->held_out.labels[static_cast<std::size_t>(i)]]
                .item<double>();
  // The same float32 layers; batch norm by other kernels, so rounding differs.
  CHECK(machine.evaluate(0, 360).loss == doctest::Approx(loss).epsilon(1e-4));
}

TEST_CASE("a step changes the running statistics, but not with frozen norm, "
          "whose weights it changes all the same") {
  for (auto norm : {norm_kind::sync, norm_kind::local, norm_kind::frozen}) {
    settings options;
    options.norm = norm;
    auto machine = trained(options);
    auto model = loaded_by_libtorch(machine);
    auto is_frozen = norm == norm_kind::frozen;
    for (auto& layer : {model->norm1, model->norm2, model->norm3}) {
      CHECK(layer->running_mean.eq(0).all().item<bool>() == is_frozen);
      CHECK(layer->running_var.eq(1).all().item<bool>() == is_frozen);
      CHECK(layer->num_batches_tracked.item<std::int64_t>() == !is_frozen);
      CHECK_FALSE(layer->bias.eq(0).all().item<bool>());
    }
  }
}

TEST_CASE("a checkpoint with one bit changed anywhere, or cut off, is refused "
          "by name") {
  settings options;
  options.model = model_kind::mlp;
  auto machine = trained(options);
  auto content = machine.save("state");
  auto before = machine.hash();
  auto load = [&](const std::string& x) {
    return message_of([&] { machine.load(x, "the file"); });
  };
  // A prime step visits every kind of byte in turn.
  for (std::size_t at = 0; at < content.size(); at += 997) {
    auto damaged = content;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    REQUIRE(load(damaged).starts_with("the file: "));
  }
  for (std::size_t size = 0; size < content.size(); size += 9973)
    REQUIRE(load(content.substr(0, size)).starts_with("the file: "));
  CHECK(machine.hash() == before);
}

TEST_CASE("a checkpoint of another model is refused by name, and nothing is "
          "taken over") {
  settings options;
  options.model = model_kind::mlp;
  auto content = trained(options).save("state");
  engine machine{{}, device{}, digits};
  auto before = machine.hash();
  CHECK(message_of([&] {
          machine.load(content, "the file");
        }).starts_with("the file: of another model"));
  CHECK(machine.hash() == before);
}

TEST_CASE("a checkpoint with the same names and as many weights, but of other "
          "shapes, types or velocity, is refused, and nothing is taken over") {
  settings options;
  options.model = model_kind::mlp;
  auto machine = trained(options);
  auto before = machine.hash();
  auto pack_with = [&](const torch::Tensor& velocity, bool turned) {
    auto model =
        make_network(options.model, options.norm, digits->training.shape);
    if (turned)
      for (auto& x : model->parameters())
        if (x.dim() == 2)
          x.set_data(x.detach().t().contiguous());
    return pack(*model, velocity, "state");
  };
  auto refusal = [&](const std::string& content) {
    return message_of([&] { machine.load(content, "the file"); });
  };
  const std::string expected = "the file: of another model: expected ";
  auto n = static_cast<std::int64_t>(machine.size());
  CHECK(refusal(pack_with(torch::zeros({n}), true)).starts_with(expected));
  CHECK(refusal(pack_with(torch::zeros({1}), false)).starts_with(expected));
  CHECK(refusal(pack_with(torch::zeros({n}, torch::kFloat64), false))
            .starts_with(expected));
  CHECK(machine.hash() == before);
  CHECK(refusal(pack_with(torch::zeros({n}), false)) == "nothing was thrown");
  CHECK(machine.hash() != before);
}
