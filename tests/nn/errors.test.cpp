// What goes wrong, what it says, and that everything works again afterwards.

#include "tests/nn/patient_layers.hpp"
#include "tests/nn/support.hpp"

#include "syncnorm/config.hpp"
#include "syncnorm/nn/convert_model.hpp"
#include "syncnorm/nn/data_parallel_with_callback.hpp"
#include "syncnorm/nn/detail/replication_scope.hpp"
#include "syncnorm/nn/module_traits.hpp"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <tuple>

namespace syncnorm::nn::test {

namespace {

/// What each copy of a net did in the last pass; copies find theirs by the
/// number of samples, which the tests make different.
struct record {
  std::array<std::string, 16> thrown;
};

record& records() {
  static record result;
  return result;
}

/// A norm between two things that can go wrong: a batch of `throws_at` samples
/// throws before it, one of `twice_at` samples calls it twice, one of
/// `reads_at` samples asks libtorch for what it refuses.
struct FragileImpl : torch::nn::Cloneable<FragileImpl> {
  std::int64_t throws_at = -1;
  std::int64_t twice_at = -1;
  std::int64_t reads_at = -1;
  SynchronizedBatchNorm2d first{nullptr};
  SynchronizedBatchNorm2d second{nullptr};

  FragileImpl() {
    FragileImpl::reset();
  }

  void reset() override {
    first = register_module("first", SynchronizedBatchNorm2d(2));
    second = register_module("second", SynchronizedBatchNorm2d(2));
  }

  Tensor forward(const Tensor& x) {
    auto n = static_cast<std::size_t>(x.size(0));
    records().thrown[n].clear();
    try {
      auto y = first->forward(x);
      if (x.size(0) == throws_at)
        throw std::domain_error{"the dog ate it"};
      if (x.size(0) == reads_at)
        std::ignore = x.data_ptr<double>();
      y = second->forward(y);
      return x.size(0) == twice_at ? second->forward(y) : y;
    } catch (const std::exception& e) {
      records().thrown[n] = e.what();
      throw;
    }
  }
};
TORCH_MODULE(Fragile);

std::vector<Tensor> batches(std::size_t copies) {
  std::vector<Tensor> result;
  for (std::size_t r = 0; r < copies; ++r)
    result.push_back(torch::randn({static_cast<std::int64_t>(r) + 2, 2, 3, 3}));
  return result;
}

void require_working(DataParallelWithCallback& parallel) {
  auto y = parallel->parallel_apply(batches(4));
  Tensor all;
  for (auto& part : y)
    all = all.defined() ? torch::cat({all, part}) : part;
  // Normalized by the last layer over the whole batch: mean 0, variance 1.
  auto rows = all.transpose(0, 1).flatten(1);
  CHECK(rows.mean(1).abs().max().item<double>() < 1e-5);
  CHECK((rows.var(1, false) - 1).abs().max().item<double>() < 1e-3);
}

TEST_CASE("an exception in one copy's forward is what the caller sees, every "
          "other copy gets an error, and the modules work again") {
  actors env;
  for (std::int64_t guilty = 0; guilty < 4; ++guilty) {
    CAPTURE(guilty);
    Fragile net;
    DataParallelWithCallback parallel{env.system, net, on_patient_cpus(4)};
    require_working(parallel);
    net->throws_at = guilty + 2;
    for (auto& copy : parallel->copies())
      copy->as<Fragile>()->throws_at = guilty + 2;
    CHECK_THROWS_AS(parallel->parallel_apply(batches(4)), std::domain_error);
    for (std::int64_t r = 0; r < 4; ++r) {
      const auto& text = records().thrown[static_cast<std::size_t>(r + 2)];
      CHECK(contains(text, "the dog ate it"));
      if (r != guilty) {
        CHECK(contains(text, "second"));
        CHECK(contains(text, std::to_string(guilty)));
      }
    }
    for (auto& copy : parallel->copies())
      copy->as<Fragile>()->throws_at = -1;
    require_working(parallel);
  }
}

TEST_CASE("copies that call a layer a different number of times get an error "
          "that names the layer, and the modules work again") {
  actors env;
  Fragile net;
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(4)};
  require_working(parallel);
  for (auto& copy : parallel->copies())
    copy->as<Fragile>()->twice_at = 3;
  std::string text;
  auto code = code_of([&] { parallel->parallel_apply(batches(4)); }, &text);
  CAPTURE(text);
  CAPTURE(static_cast<int>(code));
  CHECK((code == errc::wrong_round || code == errc::participant_failed));
  CHECK(contains(text, "second"));
  CHECK(contains(text, "after 1 call"));
  for (auto& copy : parallel->copies())
    copy->as<Fragile>()->twice_at = -1;
  require_working(parallel);
}

TEST_CASE("what a layer of a net refuses is refused under its path") {
  actors env;
  torch::nn::Sequential net{SynchronizedBatchNorm2d{2},
                            SynchronizedBatchNorm2d{3}};
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(2)};
  std::string text;
  CHECK(code_of(
            [&] {
              parallel->forward(torch::randn({4, 2, 3, 3}));
            },
            &text)
        == errc::shape_mismatch);
  CHECK(contains(text, "SynchronizedBatchNorm2d 1: input: expected 3 channels, "
                       "got 2"));
}

TEST_CASE("what a backward pass refuses is refused under the layer's path") {
  actors env;
  torch::nn::Sequential net{SynchronizedBatchNorm2d{2},
                            SynchronizedBatchNorm2d{2}};
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(2)};
  auto y = parallel->forward(torch::randn({4, 2, 3, 3}));
  auto part = parallel->copies()[1]->children()[1];
  part->as<SynchronizedBatchNorm2d>()->weight.set_data(
      torch::ones({2}, torch::kDouble));
  std::string text;
  CHECK(code_of([&] { y.backward(torch::randn_like(y)); }, &text)
        == errc::dtype_mismatch);
  CHECK(contains(text, "SynchronizedBatchNorm2d 1: backward: weight: expected "
                       "Float"));
}

TEST_CASE("a wrong rank, channel count or dtype is an error that names layer, "
          "argument, expected and got") {
  SynchronizedBatchNorm2d layer{2};
  std::string text;
  auto run = [&](const Tensor& x) {
    return code_of([&] { layer->forward(x); }, &text);
  };
  CHECK(run(torch::randn({2, 2, 3})) == errc::shape_mismatch);
  CHECK(contains(text, "SynchronizedBatchNorm2d: input: expected 4 dimensions, "
                       "got 3 of shape [2, 2, 3]"));
  CHECK(run(torch::randn({2, 5, 3, 3})) == errc::shape_mismatch);
  CHECK(contains(text, "expected 2 channels, got 5"));
  CHECK(run(torch::randn({2, 2, 3, 3}, torch::kDouble))
        == errc::dtype_mismatch);
  CHECK(contains(text, "weight: expected float64 for float64 input, got "
                       "float32"));
  CHECK(run(torch::ones({2, 2, 3, 3}, torch::kInt)) == errc::dtype_mismatch);
  CHECK(run(Tensor{}) == errc::invalid_argument);
  CHECK(run(torch::randn({1, 2, 1, 1})) == errc::invalid_argument);
  CHECK(contains(text, "more than 1 value"));
  CHECK(run(torch::ones({2, 2, 3, 3}).to_sparse()) == errc::dtype_mismatch);
  CHECK(contains(text, "got Sparse"));
  layer->options.momentum(2);
  CHECK(run(torch::randn({2, 2, 3, 3})) == errc::invalid_argument);
  CHECK(torch::equal(layer->running_mean, torch::zeros({2})));
  CHECK(layer->num_batches_tracked.item<std::int64_t>() == 0);
  SynchronizedBatchNorm1d one{2};
  CHECK(code_of([&] {
          one->forward(torch::randn({2, 2, 3, 3}));
        })
        == errc::shape_mismatch);
  SynchronizedBatchNorm3d three{2};
  CHECK(code_of([&] {
          three->forward(torch::randn({2, 2, 3, 3}));
        })
        == errc::shape_mismatch);
}

TEST_CASE(
    "an epsilon, a momentum or a number of channels that is out of range is "
    "refused by its name; the bounds are in range") {
  auto code = [](SynchronizedBatchNormOptions options, std::string& text) {
    SynchronizedBatchNorm2d layer{options};
    return code_of([&] { layer->forward(torch::randn({2, 2, 3, 3})); }, &text);
  };
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
  std::string text;
  for (auto eps : {-1e-5, infinity, nan}) {
    CHECK(code(SynchronizedBatchNormOptions{2}.eps(eps), text)
          == errc::invalid_argument);
    CHECK(contains(text, "eps: expected 0 or more, finite, got "));
  }
  for (auto momentum : {-0.1, 1.1, nan}) {
    CHECK(code(SynchronizedBatchNormOptions{2}.momentum(momentum), text)
          == errc::invalid_argument);
    CHECK(contains(text, "momentum: expected a number in [0, 1], got "));
  }
  CHECK(code(SynchronizedBatchNormOptions{0}, text) == errc::invalid_argument);
  CHECK(contains(text, "num_features: expected 1 or more, got 0"));
  for (auto bound : {0.0, 1.0})
    CHECK(code(SynchronizedBatchNormOptions{2}.eps(bound).momentum(bound), text)
          == errc::none);
}

TEST_CASE("one value per channel is refused in evaluation as well where there "
          "are no running statistics, and the text says so") {
  SynchronizedBatchNorm1d layer{
      SynchronizedBatchNorm1dOptions(2).track_running_stats(false)};
  std::string text;
  auto run = [&] {
    return code_of([&] { layer->forward(torch::randn({1, 2})); }, &text);
  };
  CHECK(run() == errc::invalid_argument);
  CHECK(contains(text, "over all copies of the group when training, got 1"));
  layer->eval();
  CHECK(run() == errc::invalid_argument);
  CHECK(contains(text, "without running statistics, got 1"));
  CHECK_NOTHROW(layer->forward(torch::randn({2, 2})));
}

TEST_CASE(
    "a layer's vector of another dtype or shape, or with gaps, is refused "
    "by its name") {
  auto check = [](auto member, const std::string& name) {
    auto refuses = [&](const Tensor& x, errc code) {
      SynchronizedBatchNorm1d layer{3};
      member(*layer) = x;
      std::string text;
      CHECK(code_of(
                [&] {
                  layer->forward(torch::randn({4, 3}));
                },
                &text)
            == code);
      CHECK(contains(text, "SynchronizedBatchNorm1d: " + name + ": expected "));
    };
    refuses(torch::ones({3}, torch::kDouble), errc::dtype_mismatch);
    refuses(torch::ones({3, 1}), errc::shape_mismatch);
    refuses(torch::ones({4}), errc::shape_mismatch);
    refuses(torch::ones({3, 2}).select(1, 0), errc::shape_mismatch);
    refuses(torch::_neg_view(torch::ones({3})), errc::invalid_argument);
  };
  check([](auto& layer) -> Tensor& { return layer.weight; }, "weight");
  check([](auto& layer) -> Tensor& { return layer.bias; }, "bias");
  check([](auto& layer) -> Tensor& { return layer.running_mean; },
        "running_mean");
  check([](auto& layer) -> Tensor& { return layer.running_var; },
        "running_var");
}

TEST_CASE("forward-mode derivatives are refused, by argument") {
  SynchronizedBatchNorm2d layer{2};
  auto x = torch::randn({2, 2, 3, 3});
  auto level = torch::autograd::ForwardADLevel::get_next_idx();
  std::string text;
  CHECK(code_of(
            [&] {
              layer->forward(at::_make_dual(x, torch::ones_like(x), level));
            },
            &text)
        == errc::invalid_argument);
  CHECK(contains(text, "input: expected no tangent"));
  auto weight = layer->weight;
  layer->weight =
      at::_make_dual(weight.detach(), torch::ones_like(weight), level);
  CHECK(code_of([&] { layer->forward(x); }, &text) == errc::invalid_argument);
  CHECK(contains(text, "weight: expected no tangent"));
  layer->weight = weight;
  auto bias = layer->bias;
  layer->bias = at::_make_dual(bias.detach(), torch::ones_like(bias), level);
  CHECK(code_of([&] { layer->forward(x); }, &text) == errc::invalid_argument);
  CHECK(contains(text, "bias: expected no tangent"));
  layer->bias = bias;
  torch::autograd::ForwardADLevel::release_idx(level);
  CHECK(code_of([&] { layer->forward(x); }) == errc::none);
}

TEST_CASE("a dtype that differs between copies is an error for all, and the "
          "modules work again") {
  actors env;
  Fragile net;
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(4)};
  auto x = batches(4);
  x[2] = x[2].to(torch::kBFloat16);
  std::string text;
  CHECK(code_of([&] { parallel->parallel_apply(x); }, &text) != errc::none);
  CHECK(contains(text, "bfloat16"));
  CHECK(contains(text, "first"));
  CHECK(contains(text, "2"));
  for (std::size_t n = 2; n < 6; ++n)
    CHECK(contains(records().thrown[n], "bfloat16"));
  require_working(parallel);
}

TEST_CASE("a wrong shape on one copy is that copy's error for the caller") {
  actors env;
  Fragile net;
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(4)};
  auto x = batches(4);
  x[1] = torch::randn({3, 7, 3, 3});
  CHECK(code_of([&] { parallel->parallel_apply(x); }) == errc::shape_mismatch);
  require_working(parallel);
}

TEST_CASE("callbacks that run twice, or outside of a scope, are errors") {
  actors env;
  std::vector<std::shared_ptr<torch::nn::Module>> copies;
  for (int i = 0; i < 2; ++i)
    copies.push_back(Fragile().ptr());
  CHECK(code_of([&] { execute_replication_callbacks(copies); })
        == errc::invalid_argument);
  {
    detail::replication_scope scope{env.system};
    execute_replication_callbacks(copies);
    std::string text;
    CHECK(code_of([&] { execute_replication_callbacks(copies); }, &text)
          == errc::duplicate_identifier);
    CHECK(contains(text, "ran twice"));
  }
  synchronize(env.system, copies);
  rethrow_first(on_threads(2, [&](std::size_t r) {
    copies[r]->as<Fragile>()->forward(batches(2)[r]);
  }));
  CHECK(copies[0]->as<Fragile>()->first->messages_sent() == 1);
}

TEST_CASE("a deadline of no time and a group of a negative size are refused by "
          "their names") {
  actors env;
  std::vector<std::shared_ptr<torch::nn::Module>> copies{
      SynchronizedBatchNorm2d{2}.ptr()};
  auto refuses = [&](const SynchronizeOptions& options, const char* text) {
    CHECK_THROWS_WITH_AS(synchronize(env.system, copies, options), text, error);
  };
  for (auto deadline : {0, -1}) {
    SynchronizeOptions options;
    options.deadline = std::chrono::nanoseconds{deadline};
    auto text = "SynchronizeOptions: deadline: expected more than 0 ns, got "
                + std::to_string(deadline) + " ns";
    refuses(options, text.c_str());
  }
  SynchronizeOptions options;
  options.group_size = -1;
  refuses(options,
          "SynchronizeOptions: group_size: expected 0 or more, got -1");
}

TEST_CASE("replication scopes nest: the innermost counts") {
  actors env;
  using detail::replication_scope;
  {
    replication_scope outer{env.system};
    {
      replication_scope inner{env.system};
      CHECK(replication_scope::current() == &inner);
    }
    CHECK(replication_scope::current() == &outer);
  }
  CHECK(replication_scope::current() == nullptr);
}

TEST_CASE("copies that differ in shape, none, and null are errors") {
  actors env;
  std::vector<std::shared_ptr<torch::nn::Module>> copies{
      torch::nn::Sequential(SynchronizedBatchNorm2d(2)).ptr(),
      torch::nn::Sequential(torch::nn::BatchNorm2d(2)).ptr()};
  std::string text;
  CHECK(code_of([&] { synchronize(env.system, copies); }, &text)
        == errc::invalid_argument);
  CHECK(contains(text, "copy 1"));
  CHECK(code_of([&] {
          synchronize(env.system, {copies[0], nullptr});
        })
        == errc::invalid_argument);
  CHECK(code_of([&] {
          synchronize(env.system,
                      std::vector<std::shared_ptr<torch::nn::Module>>{});
        })
        == errc::invalid_argument);
  auto shared = SynchronizedBatchNorm2d(2).ptr();
  CHECK(code_of([&] {
          synchronize(
              env.system,
              std::vector<std::shared_ptr<torch::nn::Module>>{shared, shared});
        })
        == errc::invalid_argument);
}

TEST_CASE("a copy with a thread of its own that gives up ends the wait of the "
          "others, and they work again after synchronize") {
  actors env;
  std::vector<std::shared_ptr<torch::nn::Module>> copies;
  for (int i = 0; i < 4; ++i)
    copies.push_back(Fragile().ptr());
  for (std::size_t guilty : {std::size_t{0}, std::size_t{2}}) {
    synchronize(env.system, copies, patient());
    auto x = batches(4);
    auto thrown = on_threads(4, [&](std::size_t r) {
      if (r == guilty)
        return give_up(*copies[r], "out of data");
      copies[r]->as<Fragile>()->forward(x[r]);
    });
    for (std::size_t r = 0; r < 4; ++r)
      CHECK(contains(text_of(thrown[r]), r == guilty ? "" : "out of data"));
    synchronize(env.system, copies, patient());
    rethrow_first(on_threads(
        4, [&](std::size_t r) { copies[r]->as<Fragile>()->forward(x[r]); }));
  }
}

/// Has a callback of its own, above a layer that has one.
struct attentive_net : torch::nn::Module, replicable {
  SynchronizedBatchNorm2d norm{
      register_module("norm", SynchronizedBatchNorm2d(2))};
  std::string told;

  void on_data_parallel_replicate(callback_context&, std::int64_t) override {}

  void on_data_parallel_failure(const std::string& why) override {
    told = why;
  }
};

std::vector<std::shared_ptr<attentive_net>>
attentive_copies(caf::actor_system& system, std::size_t n) {
  std::vector<std::shared_ptr<attentive_net>> result;
  for (std::size_t r = 0; r < n; ++r)
    result.push_back(std::make_shared<attentive_net>());
  synchronize(system, result, patient());
  return result;
}

TEST_CASE("give_up and fail_replica tell the other copies, and the modules of "
          "the copy that have a callback for it") {
  actors env;
  auto by_give_up = [](torch::nn::Module& m) { give_up(m, "out of data"); };
  auto by_fail = [](torch::nn::Module& m) { fail_replica(&m, "out of data"); };
  for (void (*tell)(torch::nn::Module&) : {+by_give_up, +by_fail}) {
    auto copies = attentive_copies(env.system, 3);
    auto x = batches(3);
    auto thrown = on_threads(3, [&](std::size_t r) {
      if (r == 1)
        return tell(*copies[r]);
      copies[r]->norm->forward(x[r]);
    });
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(contains(text_of(thrown[r]), r == 1 ? "" : "out of data"));
      CHECK(copies[r]->told == (r == 1 ? "out of data" : ""));
    }
  }
}

TEST_CASE("pointers to one's own modules and module holders are walked as "
          "libtorch's") {
  actors env;
  auto copies = attentive_copies(env.system, 2);
  desynchronize(copies);
  std::vector<SynchronizedBatchNorm2d> holders(2, nullptr);
  for (auto& holder : holders)
    holder = SynchronizedBatchNorm2d(2);
  {
    detail::replication_scope scope{env.system};
    execute_replication_callbacks(copies);
    execute_replication_callbacks(holders);
  }
  auto x = batches(2);
  rethrow_first(on_threads(2, [&](std::size_t r) {
    copies[r]->norm->forward(x[r]);
    holders[r]->forward(x[r]);
  }));
  CHECK(copies[0]->norm->messages_sent() == 1);
  CHECK(holders[0]->messages_sent() == 1);
  fail_replica(copies[1].get(), "out of data");
  CHECK(copies[1]->told == "out of data");
  release_replicas(copies);
  release_replicas(holders);
  CHECK_FALSE(copies[0]->norm->is_attached());
  CHECK_FALSE(holders[0]->is_attached());
}

TEST_CASE("holders without a module are refused as null") {
  actors env;
  torch::nn::Sequential none{nullptr};
  CHECK(code_of([&] { (void) convert_model(none); }) == errc::invalid_argument);
  CHECK(code_of([&] {
          DataParallelWithCallback{env.system, none};
        })
        == errc::invalid_argument);
}

TEST_CASE("desynchronize releases copies of any static type, and none of them "
          "if one is null") {
  actors env;
  auto copies = attentive_copies(env.system, 2);
  copies.push_back(nullptr);
  std::string text;
  CHECK(code_of([&] { desynchronize(copies); }, &text)
        == errc::invalid_argument);
  CHECK(contains(text, "copy 2 is null"));
  CHECK(copies[0]->norm->is_attached());
  copies.pop_back();
  desynchronize(copies);
  for (const auto& copy : copies)
    CHECK_FALSE(copy->norm->is_attached());
}

TEST_CASE("what other copies are told of libtorch's errors has no stack trace, "
          "in a forward pass and of a copy that fails before a layer") {
  actors env;
  auto layers = patient_layers(env.system, 2);
  auto thrown = on_threads(2, [&](std::size_t r) {
    auto x = torch::randn({2, 2, 3, 3});
    if (r == 1) {
      c10::InferenceMode inference;
      x = torch::randn({2, 2, 3, 3});
    }
    layers[r]->forward(x);
    layers[r]->forward(x);
  });
  CHECK(contains(text_of(thrown[0]), "Inference tensors cannot be saved"));
  CHECK_FALSE(contains(text_of(thrown[0]), "frame #0"));
  Fragile net;
  net->reads_at = 3;
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(4)};
  CHECK_THROWS_AS(parallel->parallel_apply(batches(4)), c10::Error);
  CHECK(contains(records().thrown[2], "expected scalar type"));
  CHECK_FALSE(contains(records().thrown[2], "frame #0"));
}

TEST_CASE("a call whose input libtorch refuses to save leaves statistics as "
          "they were, of every copy and of a layer that stands alone") {
  actors env;
  Tensor refused;
  {
    c10::InferenceMode inference;
    refused = torch::randn({2, 2, 3, 3}) + 5;
  }
  auto check_untouched = [](SynchronizedBatchNorm2dImpl& layer) {
    CHECK(layer.num_batches_tracked.item<std::int64_t>() == 0);
    CHECK(torch::equal(layer.running_mean, torch::zeros({2})));
    CHECK(torch::equal(layer.running_var, torch::ones({2})));
  };
  SynchronizedBatchNorm2d alone{2};
  CHECK_THROWS_WITH(alone->forward(refused),
                    doctest::Contains("Inference tensors cannot be saved"));
  check_untouched(*alone);
  auto layers = patient_layers(env.system, 3);
  auto thrown = on_threads(3, [&](std::size_t r) {
    layers[r]->forward(r == 2 ? refused : torch::randn({2, 2, 3, 3}));
  });
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(contains(text_of(thrown[r]), "Inference tensors cannot be saved"));
    check_untouched(*layers[r]);
  }
}

TEST_CASE("with nothing to differentiate, copies take inputs that were made "
          "under InferenceMode, as a single layer does") {
  actors env;
  SynchronizedBatchNorm2d layer{2};
  for (auto& parameter : layer->parameters())
    parameter.set_requires_grad(false);
  auto x = batches(2);
  {
    c10::InferenceMode inference;
    for (auto& part : x)
      part = part.clone();
  }
  SynchronizedBatchNorm2d single{2};
  auto expected = single->forward(torch::cat(x).clone());
  DataParallelWithCallback parallel{env.system, layer, on_patient_cpus(2)};
  auto y = parallel->parallel_apply(x);
  CHECK(distance(expected, torch::cat(y)) <= tolerance(torch::kFloat));
  // Where another copy is differentiated, its gradient needs them.
  x[1] = x[1].clone().requires_grad_();
  y = parallel->parallel_apply(x);
  std::string text;
  CHECK(code_of([&] { y[1].sum().backward(); }, &text)
        == errc::invalid_argument);
  CHECK(contains(text, "expected inputs and forward passes of all copies "
                       "outside of InferenceMode"));
}

TEST_CASE("a copy whose weight was made under InferenceMode takes part in no "
          "backward pass of the others") {
  actors env;
  std::vector<SynchronizedBatchNorm2d> layers{SynchronizedBatchNorm2d{2},
                                              SynchronizedBatchNorm2d{2}};
  layers[1]->bias.set_requires_grad(false);
  {
    c10::InferenceMode inference;
    layers[1]->weight = torch::ones({2});
  }
  detail::replication_scope scope{env.system, patient(),
                                  detail::graph_kind::joint};
  execute_replication_callbacks(layers);
  std::vector<Tensor> y(2);
  rethrow_first(on_threads(2, [&](std::size_t r) {
    y[r] = layers[r]->forward(torch::randn({2, 2, 3, 3}));
  }));
  std::string text;
  CHECK(code_of([&] { y[0].sum().backward(); }, &text)
        == errc::invalid_argument);
  CHECK(contains(text, "outside of InferenceMode"));
}

struct impatient_config : config {
  impatient_config() {
    syncnorm::add_config_options(custom_options_);
    set("syncnorm.deadline", caf::timespan{std::chrono::milliseconds{50}});
  }
};

void check_late_copy(caf::actor_system& system,
                     const SynchronizeOptions& options) {
  std::vector<std::shared_ptr<torch::nn::Module>> copies;
  for (int i = 0; i < 3; ++i)
    copies.push_back(Fragile().ptr());
  synchronize(system, copies, options);
  auto thrown = on_threads(2, [&](std::size_t r) {
    copies[r]->as<Fragile>()->forward(batches(3)[r]);
  });
  // On a busy machine another copy may be late as well.
  for (const auto& x : thrown) {
    CHECK(contains(text_of(x), "layer first, round 1: waited 0.05 s for"));
    CHECK(
        (contains(text_of(x), "for replica 2") || contains(text_of(x), ", 2")));
  }
}

TEST_CASE("a copy that does not come is named when the deadline has passed: "
          "that of the options, or else of the configuration") {
  actors env;
  SynchronizeOptions options;
  options.deadline = std::chrono::milliseconds{50};
  check_late_copy(env.system, options);
  impatient_config configuration;
  caf::actor_system configured{configuration};
  check_late_copy(configured, {});
}

TEST_CASE("a device that the output cannot go to is refused by its option, "
          "also between passes") {
  actors env;
  auto refuses = [](auto f) {
    std::string text;
    CHECK(code_of(f, &text) == errc::device_unavailable);
    CHECK(contains(text, "output_device: expected a CPU or a CUDA device, got "
                         "meta"));
  };
  auto to_none = on_patient_cpus(2).output_device(torch::Device{"meta"});
  refuses([&] {
    DataParallelWithCallback parallel{env.system, Fragile(), to_none};
  });
  DataParallelWithCallback parallel{env.system, Fragile(), on_patient_cpus(4)};
  parallel->options.output_device(torch::Device{"meta"});
  refuses([&] { parallel->forward(torch::randn({8, 2, 3, 3})); });
  parallel->options.output_device(std::nullopt);
  require_working(parallel);
}

TEST_CASE("what a data-parallel object cannot run is an error") {
  actors env;
  CHECK(code_of([&] {
          DataParallelWithCallback parallel{env.system,
                                            std::shared_ptr<FragileImpl>{}};
        })
        == errc::invalid_argument);
  DataParallelWithCallback parallel{env.system, Fragile(), on_patient_cpus(2)};
  CHECK(code_of([&] { parallel->parallel_apply(batches(3)); })
        == errc::invalid_argument);
  CHECK(code_of([&] { parallel->parallel_apply({}); })
        == errc::invalid_argument);
  CHECK(code_of([&] { parallel->forward(torch::tensor(1.0)); })
        == errc::invalid_argument);
  for (auto dim : {-5, 4}) {
    parallel->options.dim(dim);
    CHECK(code_of([&] { parallel->forward(batches(1)[0]); })
          == errc::invalid_argument);
  }
}

} // namespace

} // namespace syncnorm::nn::test
