// The layer as a libtorch module: options, files, clones, conversion.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/convert_model.hpp"
#include "syncnorm/nn/data_parallel_with_callback.hpp"
#include "syncnorm/nn/patch_replication_callback.hpp"

#include <pthread.h>
#include <sstream>

namespace syncnorm::nn::test {

namespace {

TEST_CASE("files of plain batch norm load into the synchronized one and back") {
  torch::nn::Sequential plain{torch::nn::Conv2d(1, 3, 2),
                              torch::nn::BatchNorm2d(3)};
  torch::nn::Sequential synced{torch::nn::Conv2d(1, 3, 2),
                               SynchronizedBatchNorm2d(3)};
  plain->forward(torch::randn({4, 1, 5, 5}));
  std::stringstream file;
  torch::save(plain, file);
  torch::load(synced, file);
  auto equal = [&] {
    auto a = plain->named_parameters();
    auto b = synced->named_parameters();
    REQUIRE(a.keys() == b.keys());
    for (const auto& entry : a)
      CHECK(torch::equal(entry.value(), b[entry.key()]));
    auto c = plain->named_buffers();
    auto d = synced->named_buffers();
    REQUIRE(c.keys() == d.keys());
    for (const auto& entry : c)
      CHECK(torch::equal(entry.value(), d[entry.key()]));
  };
  equal();
  synced->forward(torch::randn({4, 1, 5, 5}));
  {
    torch::NoGradGuard no_grad;
    synced->parameters()[2] += 1;
  }
  std::stringstream back;
  torch::save(synced, back);
  torch::load(plain, back);
  equal();
  CHECK(plain->named_buffers()["1.num_batches_tracked"].item<std::int64_t>()
        == 2);
}

TEST_CASE("a layer that stands alone is a plain batch norm, with every "
          "option") {
  for (auto affine : {true, false})
    for (auto tracked : {true, false})
      for (auto momentum : {optional_momentum{0.3}, optional_momentum{}}) {
        auto options = torch::nn::BatchNorm2dOptions(3)
                           .eps(0.01)
                           .momentum(momentum)
                           .affine(affine)
                           .track_running_stats(tracked);
        torch::nn::BatchNorm2d plain{options};
        SynchronizedBatchNorm2d synced{SynchronizedBatchNorm2dOptions{options}};
        plain->to(torch::kDouble);
        synced->to(torch::kDouble);
        for (auto training : {true, true, false}) {
          plain->train(training);
          synced->train(training);
          auto x = torch::randn({4, 3, 5, 5}, torch::kDouble);
          auto a = x.clone().requires_grad_();
          auto b = x.clone().requires_grad_();
          auto y = plain->forward(a);
          auto z = synced->forward(b);
          auto dy = torch::randn_like(y);
          y.backward(dy);
          z.backward(dy);
          CHECK(distance(y, z) <= 1e-10);
          CHECK(distance(a.grad(), b.grad()) <= 1e-10);
        }
        if (tracked)
          CHECK(distance(plain->running_var, synced->running_var) <= 1e-10);
        if (affine)
          CHECK(distance(plain->weight.grad(), synced->weight.grad()) <= 1e-10);
      }
}

TEST_CASE("a layer has running statistics or not as it was made, whatever the "
          "options say afterwards") {
  SynchronizedBatchNorm2d layer{3};
  SynchronizedBatchNorm2d same{3};
  layer->options.track_running_stats(false);
  auto x = torch::randn({4, 3, 2, 2}) + 5;
  for (auto training : {true, false}) {
    layer->train(training);
    same->train(training);
    CHECK(torch::equal(layer->forward(x), same->forward(x)));
  }
  CHECK(torch::equal(layer->running_mean, same->running_mean));
  CHECK(layer->num_batches_tracked.item<std::int64_t>() == 1);
}

TEST_CASE("the clamp mode bounds the variance from below by epsilon") {
  SynchronizedBatchNorm1d layer{
      SynchronizedBatchNorm1dOptions(2).eps_mode(eps_mode::clamp).eps(0.25)};
  layer->to(torch::kDouble);
  auto x = torch::tensor({{1.0, 0.1}, {3.0, 0.3}, {5.0, 0.5}}, torch::kDouble);
  auto y = layer->forward(x);
  auto xmu = x - x.mean(0);
  // Variances 8/3 and 0.0266: the second is clamped.
  auto expected = torch::stack(
      {xmu.select(1, 0) / std::sqrt(8.0 / 3), xmu.select(1, 1) / 0.5}, 1);
  CHECK(distance(expected, y) <= 1e-10);
  // In evaluation that of the running statistics.
  layer->eval();
  layer->running_mean.zero_();
  layer->running_var.copy_(torch::tensor({4.0, 0.04}, torch::kDouble));
  auto deviations = torch::tensor({2.0, 0.5}, torch::kDouble);
  CHECK(distance(x / deviations, layer->forward(x)) <= 1e-10);
}

TEST_CASE("input with gaps, of any strides, equals its contiguous copy") {
  SynchronizedBatchNorm2d layer{3};
  auto big = torch::randn({6, 8, 5, 7});
  std::vector<Tensor> odd{big.narrow(1, 2, 3),
                          big.narrow(1, 2, 3).slice(0, 0, 6, 2),
                          torch::randn({5, 7, 4, 3}).permute({2, 3, 0, 1}),
                          torch::randn({4, 3, 7, 5}).transpose(2, 3),
                          torch::randn({4, 3, 1, 1}).expand({4, 3, 5, 5}),
                          torch::randn({1, 3, 5, 5}).expand({4, 3, 5, 5})};
  for (const auto& x : odd) {
    auto a = x.detach().clone(at::MemoryFormat::Contiguous).requires_grad_();
    auto b = x.detach().requires_grad_();
    auto dy = torch::randn({x.size(3), x.size(2), x.size(1), x.size(0)})
                  .permute({3, 2, 1, 0});
    auto y = layer->forward(a);
    auto z = layer->forward(b);
    y.backward(dy);
    z.backward(dy);
    CHECK(distance(y, z) <= tolerance(torch::kFloat));
    CHECK(distance(a.grad(), b.grad()) <= tolerance(torch::kFloat));
  }
}

/// Lets go of a graph on a thread with little stack.
void release_on_small_stack(Tensor y) {
  pthread_attr_t little;
  pthread_t thread;
  REQUIRE(pthread_attr_init(&little) == 0);
  REQUIRE(pthread_attr_setstacksize(&little, 256 << 10) == 0);
  auto release = [](void* of) -> void* {
    static_cast<Tensor*>(of)->reset();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &little, release, &y) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&little);
  CHECK_FALSE(y.defined());
}

TEST_CASE(
    "the graph of a deep net is released without a deep stack, of a layer "
    "that stands alone and of copies") {
  actors env;
  constexpr int depth = 4000;
  SynchronizedBatchNorm1d layer{2};
  auto deep = [](torch::nn::Module& m, Tensor x) {
    for (int i = 0; i < depth; ++i)
      x = m.as<SynchronizedBatchNorm1d>()->forward(x);
    return x;
  };
  release_on_small_stack(deep(*layer, torch::randn({3, 2})));
  DataParallelWithCallback parallel{
      env.system, layer.ptr(), deep,
      DataParallelWithCallbackOptions{}.devices(cpu_times(2))};
  release_on_small_stack(parallel->forward(torch::randn({4, 2})));
}

TEST_CASE("input, cotangent or both that are views of their negatives equal "
          "what they are views of, in any layout") {
  auto dense = torch::randn({4, 3, 5, 5});
  for (const auto& x : {dense, dense.contiguous(at::MemoryFormat::ChannelsLast),
                        torch::randn({4, 3, 5, 8}).narrow(3, 1, 5)}) {
    auto dy = torch::randn_like(x);
    auto run = [](const Tensor& in, const Tensor& cotangent) {
      SynchronizedBatchNorm2d layer{3};
      auto at = in.detach().requires_grad_();
      auto y = layer->forward(at);
      y.backward(cotangent);
      return std::vector<Tensor>{y, at.grad(), layer->running_mean,
                                 layer->bias.grad()};
    };
    auto expected = run(x, dy);
    auto minus_x = torch::_neg_view(-x);
    auto minus_dy = torch::_neg_view(-dy);
    REQUIRE(minus_x.is_neg());
    for (const auto& got :
         {run(minus_x, dy), run(x, minus_dy), run(minus_x, minus_dy)})
      for (std::size_t i = 0; i < got.size(); ++i)
        CHECK(distance(expected[i], got[i]) <= tolerance(torch::kFloat));
  }
  SynchronizedBatchNorm2d layer{3};
  layer->weight = torch::_neg_view(-layer->weight.detach());
  CHECK_THROWS_AS(layer->forward(dense), error);
}

TEST_CASE("second derivatives of copies with graphs of their own equal finite "
          "differences of the first") {
  actors env;
  std::vector<SynchronizedBatchNorm1d> layers;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (int r = 0; r < 2; ++r) {
    layers.emplace_back(SynchronizedBatchNorm1dOptions(2));
    layers.back()->to(torch::kDouble);
    modules.push_back(layers.back().ptr());
  }
  synchronize(env.system, modules);
  std::vector<Tensor> at;
  std::vector<Tensor> direction;
  for (int n : {3, 2}) {
    at.push_back(torch::randn({n, 2}, torch::kDouble));
    direction.push_back(torch::randn({n, 2}, torch::kDouble));
  }
  auto run = [&](double h, bool second) {
    std::vector<Tensor> result(2);
    rethrow_first(on_threads(2, [&](std::size_t r) {
      auto x = (at[r] + h * direction[r]).requires_grad_();
      auto loss = (layers[r]->forward(x).sin() * (1.0 + r)).sum();
      auto dx = torch::autograd::grad({loss}, {x}, {}, second, second)[0];
      if (second)
        dx = torch::autograd::grad({(dx * direction[r]).sum()}, {x})[0];
      result[r] = dx;
    }));
    return result;
  };
  auto h = 1e-5;
  auto second = run(0, true);
  auto ahead = run(h, false);
  auto behind = run(-h, false);
  // As for the data-parallel graph: the difference is good to about 1e-9.
  for (std::size_t r = 0; r < 2; ++r)
    CHECK(distance((ahead[r] - behind[r]) / (2 * h), second[r]) <= 1e-6);
}

// -- conversion ---------------------------------------------------------------

/// A norm in a typed member, as most C++ models have it.
struct TypedImpl : torch::nn::Module {
  torch::nn::BatchNorm2d bn{nullptr};

  TypedImpl() {
    bn = register_module("bn", torch::nn::BatchNorm2d(2));
  }
};

/// A norm in a member that can become another type, of a module that can be
/// copied then, too.
struct WillingImpl : torch::nn::Cloneable<WillingImpl>, ReplaceableChildren {
  torch::nn::AnyModule norm{torch::nn::BatchNorm2d(2)};

  WillingImpl() {
    WillingImpl::reset();
  }

  void reset() override {
    norm = norm.clone();
    register_module("norm", norm.ptr());
  }

  Tensor forward(const Tensor& x) {
    return norm.forward(x);
  }

  void replace_child(const std::string&,
                     const std::shared_ptr<torch::nn::Module>& child) override {
    norm = torch::nn::AnyModule{
        std::dynamic_pointer_cast<SynchronizedBatchNorm2dImpl>(child)};
  }
};
TORCH_MODULE(Willing);

TEST_CASE("convert_model keeps parameters, buffers, counters, flags and every "
          "option") {
  auto old = std::make_shared<torch::nn::BatchNorm2dImpl>(
      torch::nn::BatchNorm2dOptions(3).eps(0.1).momentum(0.7));
  old->to(torch::kDouble);
  old->forward(torch::randn({4, 3, 5, 5}, torch::kDouble));
  old->eval();
  old->weight.requires_grad_(false);
  auto made = std::dynamic_pointer_cast<SynchronizedBatchNorm2dImpl>(
      convert_model(std::shared_ptr<torch::nn::Module>{old}));
  REQUIRE(made);
  CHECK(made->weight.is_same(old->weight));
  CHECK(made->named_parameters()["bias"].is_same(old->bias));
  CHECK_FALSE(made->weight.requires_grad());
  CHECK(made->running_var.is_set_to(old->running_var));
  CHECK(torch::equal(made->num_batches_tracked, old->num_batches_tracked));
  CHECK(made->options.eps() == 0.1);
  CHECK(*made->options.momentum() == 0.7);
  CHECK_FALSE(made->is_training());
  auto bare = std::make_shared<torch::nn::BatchNorm3dImpl>(
      torch::nn::BatchNorm3dOptions(3).affine(false).track_running_stats(
          false));
  auto converted = std::dynamic_pointer_cast<SynchronizedBatchNorm3dImpl>(
      convert_model(std::shared_ptr<torch::nn::Module>{bare}));
  REQUIRE(converted);
  CHECK_FALSE(converted->weight.defined());
  CHECK_FALSE(converted->running_mean.defined());
  CHECK_THROWS_AS(std::ignore = convert_model(bare), error);
}

TEST_CASE("convert_model finds norms in containers and modules of any depth, "
          "keeps twice-referenced ones one, and leaves others alone") {
  torch::nn::Sequential inner{torch::nn::BatchNorm1d(4),
                              torch::nn::GroupNorm(2, 4),
                              torch::nn::InstanceNorm1d(4)};
  torch::nn::ModuleList list;
  list->push_back(inner);
  list->push_back(inner);
  torch::nn::ModuleDict dict;
  {
    torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>> items;
    items.insert("norm", torch::nn::BatchNorm3d(2).ptr());
    dict->update(items);
  }
  list->push_back(dict);
  list->push_back(std::make_shared<WillingImpl>());
  torch::nn::ModuleList root;
  root->push_back(list);
  auto same = convert_model(root);
  CHECK(same.get() == root.get());
  CHECK(inner[0]->as<SynchronizedBatchNorm1d>() != nullptr);
  CHECK(inner->named_children()["0"].get() == inner[0].get());
  CHECK(inner[1]->as<torch::nn::GroupNorm>() != nullptr);
  CHECK(inner[2]->as<torch::nn::InstanceNorm1d>() != nullptr);
  CHECK(dict["norm"]->as<SynchronizedBatchNorm3d>() != nullptr);
  CHECK(dict->named_children()["norm"].get() == dict["norm"].get());
  auto* willing = dynamic_cast<WillingImpl*>(list[3].get());
  CHECK(willing->norm.ptr()->as<SynchronizedBatchNorm2d>() != nullptr);
  CHECK(willing->forward(torch::randn({2, 2, 3, 3})).sizes()
        == torch::IntArrayRef({2, 2, 3, 3}));
  torch::nn::Sequential twice;
  auto norm = std::make_shared<torch::nn::BatchNorm1dImpl>(4);
  twice->push_back(norm);
  twice->push_back(norm);
  norm.reset();
  twice = convert_model(twice);
  CHECK(twice[0].get() == twice[1].get());
  CHECK(twice[0]->as<SynchronizedBatchNorm1d>() != nullptr);
}

TEST_CASE("convert_model refuses a layer that a typed member goes on using, "
          "and changes nothing") {
  auto model = std::make_shared<TypedImpl>();
  torch::nn::Sequential first{torch::nn::BatchNorm1d(4)};
  torch::nn::ModuleList root;
  root->push_back(first);
  root->push_back(model);
  std::string text;
  try {
    std::ignore = convert_model(root);
  } catch (const error& x) {
    text = x.what();
  }
  CHECK(text.find("1.bn") != std::string::npos);
  CHECK(first[0]->as<torch::nn::BatchNorm1d>() != nullptr);
  ConvertOptions options;
  options.allow_other_owners = true;
  std::ignore = convert_model(root, options);
  CHECK(model->named_children()["bn"]->as<SynchronizedBatchNorm2d>()
        != nullptr);
}

TEST_CASE("convert_model refuses a layer that a typed member shares with a "
          "module whose own can be replaced") {
  auto typed = std::make_shared<TypedImpl>();
  Willing willing;
  willing->norm = torch::nn::AnyModule{typed->bn};
  willing->replace_module("norm", typed->bn.ptr());
  torch::nn::ModuleList root;
  root->push_back(willing);
  root->push_back(typed);
  CHECK_THROWS_AS(std::ignore = convert_model(root), error);
  CHECK(willing->norm.ptr() == typed->bn.ptr());
}

TEST_CASE("convert_model works below a data-parallel wrapper") {
  actors env;
  auto with = DataParallelWithCallbackOptions{}.devices(cpu_times(2));
  torch::nn::Sequential net{torch::nn::Conv2d(1, 2, 2),
                            torch::nn::BatchNorm2d(2)};
  torch::nn::Sequential plain{torch::nn::Conv2d(1, 2, 2),
                              torch::nn::BatchNorm2d(2)};
  DataParallelWithCallback wrapped{env.system, net, with};
  auto x = torch::randn({6, 1, 4, 4});
  // Unconverted, the copies normalize by themselves.
  CHECK(distance(net->forward(x), wrapped->forward(x)) > 1e-3);
  wrapped = convert_model(wrapped);
  CHECK(distance(net->forward(x), wrapped->forward(x)) <= 1e-5);
  DataParallelWithCallback root{env.system, torch::nn::BatchNorm2d(1), with};
  root = convert_model(root);
  auto y = root->forward(x);
  CHECK(std::abs(y.var(false).item<double>() - 1) < 1e-3);
}

TEST_CASE("convert_model keeps the forward function that a data-parallel "
          "object was given") {
  actors env;
  auto forward = [](torch::nn::Module& m, const Tensor& x) {
    auto* converted = m.as<SynchronizedBatchNorm2d>();
    return 2 * (converted ? converted->forward(x) : plain_forward(m, x));
  };
  auto layer = torch::nn::BatchNorm2d(1).ptr();
  DataParallelWithCallback wrapped{env.system, layer, forward,
                                   on_patient_cpus(2)};
  layer = nullptr;
  wrapped = convert_model(wrapped);
  auto x = torch::randn({6, 1, 4, 4});
  auto expected = 2 * torch::nn::BatchNorm2d(1)->forward(x);
  CHECK(distance(expected, wrapped->forward(x)) <= 1e-5);
}

TEST_CASE("convert_model goes by the tensors that a layer has where its "
          "options were changed since, and else refuses it by its path") {
  torch::nn::BatchNorm2d bare{
      torch::nn::BatchNorm2dOptions(3).affine(false).track_running_stats(
          false)};
  bare->options.affine(true).track_running_stats(true);
  torch::nn::BatchNorm2d affine{3};
  affine->options.affine(false);
  torch::nn::Sequential net{bare, affine};
  auto x = torch::randn({4, 3, 2, 2});
  auto y = net->forward(x);
  ConvertOptions options;
  options.allow_other_owners = true;
  net = convert_model(net, options);
  CHECK(net->parameters().size() == 2);
  CHECK(net->buffers().size() == 3);
  CHECK(distance(y, net->forward(x)) <= tolerance(torch::kFloat));

  torch::nn::BatchNorm2d switched{3};
  switched->options.track_running_stats(false);
  torch::nn::Sequential other{torch::nn::BatchNorm2d(3), switched};
  std::string text;
  try {
    std::ignore = convert_model(other, options);
  } catch (const error& e) {
    text = e.what();
  }
  CHECK(text.find("convert_model: 1: ") != std::string::npos);
  CHECK(text.find("track_running_stats") != std::string::npos);
  CHECK(other[0]->as<torch::nn::BatchNorm2d>() != nullptr);
  CHECK_THROWS_AS(std::ignore = convert_model(switched, options), error);
}

TEST_CASE("convert_model refuses a layer that has only some of its tensors by "
          "which, and no model") {
  auto refuses = [](auto change, const char* text) {
    auto layer = std::make_shared<torch::nn::BatchNorm1dImpl>(3);
    change(*layer);
    CHECK_THROWS_WITH_AS(
        std::ignore = convert_model(std::shared_ptr<torch::nn::Module>{layer}),
        text, error);
  };
  auto affine = "convert_model: model: expected a weight and a bias or "
                "neither, got one of them";
  refuses([](auto& layer) { layer.weight = Tensor{}; }, affine);
  refuses([](auto& layer) { layer.bias = Tensor{}; }, affine);
  auto running = "convert_model: model: expected running statistics with their "
                 "counter or none of them, got some of them";
  refuses([](auto& layer) { layer.running_mean = Tensor{}; }, running);
  refuses([](auto& layer) { layer.running_var = Tensor{}; }, running);
  refuses([](auto& layer) { layer.num_batches_tracked = Tensor{}; }, running);
  CHECK_THROWS_WITH_AS(
      std::ignore = convert_model(std::shared_ptr<torch::nn::Module>{}),
      "convert_model: model: expected a module, got null", error);
}

TEST_CASE("a module that makes in reset() whichever layer it has runs on "
          "copies before and after convert_model") {
  actors env;
  Willing net;
  auto x = torch::randn({6, 2, 3, 3});
  auto with = DataParallelWithCallbackOptions{}.devices(cpu_times(2));
  DataParallelWithCallback before{env.system, net, with};
  CHECK(distance(net->forward(x), before->forward(x)) > 1e-3);
  net = convert_model(net);
  DataParallelWithCallback after{env.system, net, with};
  CHECK(distance(net->forward(x), after->forward(x)) <= 1e-5);
}

// -- somebody's own data-parallel object --------------------------------------

/// One that clones the model for each pass and adds the clones' gradients by
/// itself.
struct own_data_parallel {
  std::function<std::vector<torch::nn::Sequential>(torch::nn::Sequential)>
      replicate = [](const torch::nn::Sequential& model) {
        std::vector<torch::nn::Sequential> result;
        for (int i = 0; i < 4; ++i)
          result.emplace_back(
              std::dynamic_pointer_cast<torch::nn::SequentialImpl>(
                  model->clone()));
        return result;
      };

  /// The output, and the gradients of the parameters for the cotangent `dy`.
  std::vector<Tensor> step(torch::nn::Sequential model, const Tensor& x,
                           const Tensor& dy) {
    auto copies = replicate(std::move(model));
    auto parts = x.chunk(4);
    std::vector<Tensor> y(4);
    rethrow_first(on_threads(
        4, [&](std::size_t r) { y[r] = copies[r]->forward(parts[r]); }));
    auto all = torch::cat(y);
    all.backward(dy);
    std::vector<Tensor> result{all};
    for (std::size_t i = 0; i < copies[0]->parameters().size(); ++i) {
      auto sum = torch::zeros_like(copies[0]->parameters()[i]);
      for (auto& copy : copies)
        sum += copy->parameters()[i].grad();
      result.push_back(sum);
    }
    return result;
  }
};

TEST_CASE("a patched data-parallel object of somebody's own gives what "
          "DataParallelWithCallback gives") {
  actors env;
  torch::nn::Sequential net{torch::nn::Conv2d(1, 3, 2),
                            SynchronizedBatchNorm2d(3)};
  net->to(torch::kDouble);
  own_data_parallel own;
  auto x = torch::randn({8, 1, 5, 5}, torch::kDouble);
  auto dy = torch::randn({8, 3, 4, 4}, torch::kDouble);
  DataParallelWithCallback ours{
      env.system, net, DataParallelWithCallbackOptions{}.devices(cpu_times(4))};
  auto y = ours->forward(x);
  y.backward(dy);
  std::vector<Tensor> expected{y};
  for (const auto& p : net->parameters())
    expected.push_back(p.grad());
  CHECK(distance(expected[0], own.step(net, x, dy)[0]) > 1e-3);
  patch_replication_callback(env.system, own);
  for (int step = 0; step < 2; ++step) {
    auto got = own.step(net, x, dy);
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(distance(expected[i], got[i]) <= 1e-10);
  }
}

/// Somebody's own data-parallel object that has lost a copy.
struct losing_data_parallel {
  std::function<std::vector<torch::nn::Sequential>()> replicate = [] {
    return std::vector<torch::nn::Sequential>{
        torch::nn::Sequential{SynchronizedBatchNorm2d(3)}, nullptr};
  };
};

TEST_CASE("a patched data-parallel object that makes a null copy is refused by "
          "the copy") {
  actors env;
  losing_data_parallel own;
  patch_replication_callback(env.system, own);
  CHECK_THROWS_WITH_AS(own.replicate(), doctest::Contains("copy 1 is null"),
                       error);
}

TEST_CASE("a clone has no seat, and copies share no state") {
  actors env;
  SynchronizedBatchNorm2d layer{2};
  auto other =
      std::dynamic_pointer_cast<SynchronizedBatchNorm2dImpl>(layer->clone());
  synchronize(env.system, std::vector<std::shared_ptr<torch::nn::Module>>{
                              layer.ptr(), other});
  CHECK(layer->is_attached());
  auto clone =
      std::dynamic_pointer_cast<SynchronizedBatchNorm2dImpl>(layer->clone());
  CHECK_FALSE(clone->is_attached());
  clone->forward(torch::randn({2, 2, 3, 3}));
  CHECK(clone->num_batches_tracked.item<std::int64_t>() == 1);
  CHECK(layer->num_batches_tracked.item<std::int64_t>() == 0);
  desynchronize({layer.ptr(), other});
  CHECK_FALSE(layer->is_attached());
}

} // namespace

} // namespace syncnorm::nn::test
