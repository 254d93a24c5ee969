#include "trainer/model/archive.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/model/hash.hpp"
#include "trainer/model/network.hpp"

#include "trainer/output/seal.hpp"

#include "trainer/digits.hpp"
#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include "tests/actors/wire.hpp"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <algorithm>
#include <sstream>

// libtorch's logging headers define CHECK, as doctest does.
#undef CHECK
#include <doctest/doctest.h>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

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

/// The content of a checkpoint of `machine`.
std::string packed(const engine& machine, const settings& options) {
  return pack(machine.state(), "state of the run", options,
              digits->training.shape);
}

model_state unpacked(const std::string& content, const settings& options) {
  return unpack(content, "the file", options, digits->training.shape);
}

/// As libtorch writes it, with our entry, and sealed.
std::string archive_of(const network& model, const torch::Tensor& velocity) {
  torch::serialize::OutputArchive archive;
  model.save(archive);
  torch::serialize::OutputArchive ours{archive.compilation_unit()};
  ours.write("velocity", velocity);
  ours.write("state", c10::IValue{std::string{"state of the run"}});
  archive.write("syncnorm", ours);
  std::ostringstream out;
  archive.save_to(out);
  auto content = out.str();
  seal(content);
  return content;
}

/// The same as a process writes it whose model is on a GPU.
std::string as_from_gpu(const std::string& content) {
  std::istringstream in{content};
  caffe2::serialize::PyTorchStreamReader reader{&in};
  std::string result;
  caffe2::serialize::PyTorchStreamWriter writer{
      [&](const void* data, std::size_t size) {
        result.append(static_cast<const char*>(data), size);
        return size;
      }};
  for (const auto& name : reader.getAllRecords()) {
    auto [data, size] = reader.getRecord(name);
    std::string record{static_cast<const char*>(data.get()), size};
    // Strings of a pickle, after their sizes.
    const std::string cpu{"X\x03\0\0\0cpu", 8};
    const std::string gpu{"X\x06\0\0\0cuda:0", 11};
    for (auto at = record.find(cpu); name == "data.pkl" && at != record.npos;
         at = record.find(cpu, at))
      record.replace(at, cpu.size(), gpu);
    // The others the writer adds.
    if (name != "version" && !name.starts_with("."))
      writer.writeRecord(name, record.data(), record.size());
  }
  writer.writeEndOfFile();
  seal(result);
  return result;
}

/// What plain libtorch reads from the checkpoint of `machine`.
std::shared_ptr<plain_cnn> loaded_by_libtorch(const engine& machine,
                                              const settings& options) {
  scratch_folder folder;
  auto file = folder / "model.pt";
  auto content = packed(machine, options);
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
    auto content = packed(machine, options);
    other.assume(unpacked(content, options));
    CHECK(other.hash() == machine.hash());
    CHECK(unpack_run(content, "the file") == "state of the run");
    CHECK(packed(other, options) == content);
  }
}

TEST_CASE("an engine that has taken over a state from another process goes on "
          "as the one that it is of") {
  (void) configuration(); // Knows the messages.
  for (auto precision : {precision_kind::f32, precision_kind::f64})
    for (auto norm : {norm_kind::sync, norm_kind::local, norm_kind::frozen}) {
      settings options;
      options.precision = precision;
      options.norm = norm;
      options.shift = 0; // Which the seed decides.
      auto machine = trained(options);
      model_state sent;
      auto wire = syncnorm::test::serialize(machine.state());
      REQUIRE(syncnorm::test::deserialize(wire, sent));
      CHECK(sent.fingerprint == machine.fingerprint());
      options.seed = 2;
      engine other{options, device{}, digits};
      other.assume(sent);
      CHECK(other.hash() == machine.hash());
      CHECK(packed(other, options) == packed(machine, options));
      std::vector<std::uint32_t> samples{9, 10, 11, 12};
      for (auto* x : {&machine, &other})
        x->descend({0.1, 0.9, 0},
                   x->differentiate(samples, samples.size(), 0).gradient);
      CHECK(other.hash() == machine.hash());
      CHECK(packed(other, options) == packed(machine, options));
    }
}

TEST_CASE("a state of another model, of another type or of other sizes is "
          "refused by what was expected and found, and nothing is taken over") {
  settings options;
  options.model = model_kind::mlp;
  auto machine = trained(options);
  auto before = machine.hash();
  auto refusal = [&](const model_state& state) {
    auto why = message_of([&] { machine.assume(state); });
    CHECK(machine.hash() == before);
    return why;
  };
  auto of_another = trained({}).state();
  CHECK(refusal(of_another)
            .starts_with("a model's state: expected one of model "));
  auto wide = options;
  wide.precision = precision_kind::f64;
  CHECK(refusal(trained(wide).state())
            .starts_with("a model's state: expected one of model "));
  // What is written before what is wrong differs from what was there.
  auto state = engine{options, device{}, digits}.state();
  auto with = [&](auto change) {
    auto result = state;
    change(result);
    return result;
  };
  CHECK(contains(refusal(with([](auto& x) { x.velocity = {}; })),
                 "velocities in float32, found 0 in float32"));
  CHECK(contains(refusal(with([](auto& x) { x.weights.f64 = {1.0}; })),
                 "in float32 and 1 in float64"));
  CHECK(contains(refusal(with([](auto& x) { x.statistics = x.weights; })),
                 " 384 statistics in float32, found "));
  CHECK(contains(refusal(with([](auto& x) {
                   x.batches = {0, -1};
                 })),
                 "counts of batches from 0 on, found -1"));
  CHECK(contains(refusal(with([](auto& x) {
                   x.batches = {0, 0, 1};
                 })),
                 "2 counts of batches, found 3"));
  machine.assume(state);
  CHECK(machine.hash() != before);
}

TEST_CASE(
    "a checkpoint's file is what libtorch writes, in the same bytes, with "
    "one more entry and a seal") {
  settings options;
  options.model = model_kind::mlp;
  engine machine{options, device{}, digits};
  auto model =
      make_network(options.model, options.norm, digits->training.shape);
  initialize(*model, options.seed);
  auto n = static_cast<std::int64_t>(machine.size());
  CHECK(packed(machine, options) == archive_of(*model, torch::zeros({n})));
}

TEST_CASE("plain libtorch loads a checkpoint under BatchNorm's names, and "
          "computes the same") {
  auto machine = trained({});
  auto model = loaded_by_libtorch(machine, {});
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
    auto model = loaded_by_libtorch(machine, options);
    auto is_frozen = norm == norm_kind::frozen;
    for (auto& layer : {model->norm1, model->norm2, model->norm3}) {
      CHECK(layer->running_mean.eq(0).all().item<bool>() == is_frozen);
      CHECK(layer->running_var.eq(1).all().item<bool>() == is_frozen);
      CHECK(layer->num_batches_tracked.item<std::int64_t>() == !is_frozen);
      CHECK_FALSE(layer->bias.eq(0).all().item<bool>());
    }
  }
}

TEST_CASE("a step that is taken back leaves the statistics that the one before "
          "it left") {
  settings options;
  auto machine = trained(options);
  std::vector<std::uint32_t> samples{9, 10, 11, 12};
  for (int i = 0; i < 2; ++i) {
    auto before = packed(machine, options);
    machine.descend({0.1, 0.9, 0},
                    machine.differentiate(samples, 4, 0).gradient);
    auto after = packed(machine, options);
    CHECK(after != before);
    (void) machine.differentiate(samples, 4, 0);
    CHECK(packed(machine, options) != after);
    machine.roll_back();
    CHECK(packed(machine, options) == after);
  }
}

TEST_CASE("the seed decides the first weights, and each layer gets others") {
  settings options;
  options.model = model_kind::resnet;
  auto first = [&](std::uint64_t seed) {
    options.seed = seed;
    return engine{options, device{}, digits}.hash();
  };
  CHECK(first(1) == first(1));
  CHECK(first(1) != first(2));
  auto model =
      make_network(options.model, options.norm, digits->training.shape);
  initialize(*model, options.seed);
  auto layers = model->named_parameters();
  CHECK_FALSE(torch::equal(layers["block1.conv1.weight"],
                           layers["block1.conv2.weight"]));
}

TEST_CASE("what an engine computes is of its precision, and of images that "
          "move otherwise in another epoch") {
  std::vector<std::uint32_t> samples{1, 2, 3, 4};
  auto loss = [&](precision_kind precision, std::size_t shift,
                  std::uint64_t epoch) {
    settings options;
    options.precision = precision;
    options.shift = shift;
    engine machine{options, device{}, digits};
    return machine.differentiate(samples, 4, epoch).loss;
  };
  auto f32 = loss(precision_kind::f32, 0, 0);
  auto bf16 = loss(precision_kind::bf16, 0, 0);
  CHECK(bf16 != f32);
  CHECK(bf16 == doctest::Approx(f32).epsilon(0.05));
  CHECK(loss(precision_kind::f32, 0, 1) == f32);
  CHECK(loss(precision_kind::f32, 3, 0) != loss(precision_kind::f32, 3, 1));
}

TEST_CASE("an engine without samples has no gradient where norm is local or "
          "frozen, and leaves its statistics") {
  for (auto norm : {norm_kind::local, norm_kind::frozen}) {
    settings options;
    options.norm = norm;
    auto machine = trained(options);
    auto before = packed(machine, options);
    auto part = machine.differentiate({}, 4, 0);
    CHECK(part.loss == 0);
    CHECK(part.gradient.size() == 0);
    CHECK(packed(machine, options) == before);
  }
}

TEST_CASE("a gradient of another size is refused, and no weight is changed") {
  settings options;
  auto machine = trained(options);
  auto before = machine.hash();
  CHECK(
      message_of([&] {
        machine.descend({0.1, 0.9, 0}, flat_array{std::vector<float>(3)});
      })
      == fmt::format("gradient: expected {} values, found 3", machine.size()));
  CHECK(machine.hash() == before);
}

TEST_CASE("a hash is of every weight, of the optimizer's state, and of the "
          "statistics but with local norm") {
  settings options;
  auto machine = trained(options);
  auto state = machine.state();
  auto values = std::vector<float>(machine.size());
  state.velocity = flat_array{values};
  engine other{options, device{}, digits};
  other.assume(state);
  CHECK(other.hash() != machine.hash());
  for (auto norm : {norm_kind::sync, norm_kind::local}) {
    options.norm = norm;
    auto one = trained(options);
    auto hash = one.hash();
    (void) one.differentiate(std::vector<std::uint32_t>{9, 10}, 2, 0);
    CHECK((one.hash() == hash) == (norm == norm_kind::local));
  }
  auto row = torch::zeros({3});
  auto before = hash_of({row});
  row[2] = 1;
  CHECK(hash_of({row}) != before);
}

TEST_CASE("a fingerprint tells the shapes of weights apart, and statistics") {
  settings options;
  auto fingerprint = [](model_kind kind, image_shape shape) {
    return fingerprint_of(*make_network(kind, norm_kind::sync, shape));
  };
  CHECK(fingerprint(model_kind::cnn, {1, 8, 8})
        != fingerprint(model_kind::cnn, {3, 8, 8}));
}

TEST_CASE("a checkpoint that was written from a GPU is read where there is "
          "none") {
  settings options;
  options.model = model_kind::mlp;
  auto machine = trained(options);
  auto content = as_from_gpu(packed(machine, options));
  CHECK(contains(content, "cuda:0"));
  engine other{options, device{}, digits};
  other.assume(unpacked(content, options));
  CHECK(other.hash() == machine.hash());
  CHECK(unpack_run(content, "the file") == "state of the run");
}

TEST_CASE("a checkpoint with one bit changed anywhere, or cut off, is refused "
          "by name") {
  settings options;
  options.model = model_kind::mlp;
  auto content = packed(trained(options), options);
  auto refusal = [&](const std::string& x) {
    return message_of([&] { (void) unpacked(x, options); });
  };
  CHECK(refusal(content) == "nothing was thrown");
  // A prime step visits every kind of byte in turn.
  for (std::size_t at = 0; at < content.size(); at += 997) {
    auto damaged = content;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    REQUIRE(refusal(damaged).starts_with("the file: "));
  }
  for (std::size_t size = 0; size < content.size(); size += 9973)
    REQUIRE(refusal(content.substr(0, size)).starts_with("the file: "));
}

TEST_CASE("a checkpoint of another model is refused by name") {
  settings options;
  options.model = model_kind::mlp;
  auto content = packed(trained(options), options);
  CHECK(message_of([&] {
          (void) unpacked(content, {});
        }).starts_with("the file: of another model"));
}

TEST_CASE("a checkpoint with the same names and as many weights, but of other "
          "shapes, types or velocity, is refused") {
  settings options;
  options.model = model_kind::mlp;
  auto archive_with = [&](const torch::Tensor& velocity, auto change) {
    auto model =
        make_network(options.model, options.norm, digits->training.shape);
    change(*model);
    return archive_of(*model, velocity);
  };
  auto refusal = [&](const std::string& content) {
    return message_of([&] { (void) unpacked(content, options); });
  };
  auto leave = [](network&) {};
  auto turn = [](network& model) {
    for (auto& x : model.parameters())
      if (x.dim() == 2)
        x.set_data(x.detach().t().contiguous());
  };
  auto count_in_floats = [](network& model) {
    for (auto& x : model.buffers())
      x.set_data(x.to(torch::kFloat32));
  };
  auto widen = [](network& model) {
    move_model(model, torch::kCPU, torch::kFloat64);
  };
  const std::string expected = "the file: of another model: expected ";
  auto n = static_cast<std::int64_t>(engine{options, device{}, digits}.size());
  auto zeros = torch::zeros({n});
  CHECK(refusal(archive_with(zeros, turn)).starts_with(expected));
  CHECK(refusal(archive_with(zeros, count_in_floats)).starts_with(expected));
  CHECK(refusal(archive_with(zeros, widen)).starts_with(expected));
  CHECK(refusal(archive_with(torch::zeros({1}), leave)).starts_with(expected));
  CHECK(refusal(archive_with(torch::zeros({n}, torch::kFloat64), leave))
            .starts_with(expected));
  CHECK(refusal(archive_with(zeros, leave)) == "nothing was thrown");
}
