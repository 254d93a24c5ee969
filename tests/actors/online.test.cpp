#include "syncnorm/batch_norm_stage.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Makes the whole stream, as one batch, the truth of everything seen so far.
using stream = std::vector<tensor>;

tensor make_part(const batch_norm_options& options, std::int64_t samples,
                 std::mt19937& random, double mean = 1) {
  std::array<std::int64_t, 3> sizes{samples, options.channels, 4};
  tensor x{make_layout(options.type, sizes)};
  fill(x, random, mean, 2);
  return x;
}

reference truth_of(const batch_norm_options& options, const stream& seen) {
  auto channels = static_cast<std::size_t>(options.channels);
  reference truth{options.eps, options.mode, std::vector<double>(channels, 1),
                  std::vector<double>(channels, 0)};
  truth.forward(seen);
  return truth;
}

double tolerance_of(dtype type) {
  return type == dtype::float64   ? 1e-10
         : type == dtype::float32 ? 1e-5
         : type == dtype::float16 ? 0x1p-9
                                  : 0x1p-6;
}

void check_near(double got, double want, double tolerance) {
  if (!(std::abs(got - want) <= tolerance * (1 + std::abs(want))))
    FAIL_CHECK("got " << got << ", want " << want);
}

/// Feeds one batch, a part a copy, and compares y with `truth`.
void check_batch(layers& copies, stream parts, stream& seen) {
  seen.insert(seen.end(), parts.begin(), parts.end());
  auto y = parts;
  run_all(copies.size(), [&](std::size_t r) {
    std::ignore = copies[r]->forward(parts[r].view(), y[r].view());
  });
  const auto& options = copies[0]->replica().options();
  auto truth = truth_of(options, seen);
  reference::for_each(parts, [&](auto c, auto r, auto i) {
    check_near(y[r].get(i), truth.y(c, parts[r].get(i)),
               tolerance_of(options.type));
  });
  for (auto& copy : copies) {
    auto state = copy->replica().state();
    REQUIRE(read(state, "num_elements_tracked")[0] == truth.count);
    auto mean = read(state, "running_mean");
    auto m2 = read(state, "running_m2");
    for (std::size_t c = 0; c < mean.size(); ++c) {
      // A batch's own moments are of the precision that the kernels sum in.
      auto tolerance = tolerance_of(statistics_type(options.type));
      check_near(mean[c], truth.mean[c], tolerance);
      check_near(m2[c] / static_cast<double>(truth.count), truth.var[c],
                 tolerance);
    }
  }
}

batch_norm_options online_options(dtype type = dtype::float64) {
  return {.name = "stream", .channels = 3, .type = type, .online = true};
}

std::vector<std::vector<double>> state_of(batch_norm_layer& layer) {
  std::vector<std::vector<double>> result;
  for (const auto& x : layer.replica().state())
    result.push_back(read({x}, x.name));
  return result;
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "online, each batch is normalized with the "
                                 "statistics of everything that all copies "
                                 "have seen") {
  for (auto type :
       {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16})
    for (auto mode : {eps_mode::plus, eps_mode::clamp}) {
      auto options = online_options(type);
      options.mode = mode;
      std::mt19937 random{7};
      auto copies = make_copies(system, options, 3);
      execute_replication_callbacks(copies);
      stream seen;
      for (std::int64_t step = 1; step <= 5; ++step)
        check_batch(copies,
                    {make_part(options, step, random),
                     make_part(options, 0, random),
                     make_part(options, 2 * step, random)},
                    seen);
      CHECK(read(copies[1]->replica().state(), "num_batches_tracked")[0] == 5);
    }
}

TEST_CASE_FIXTURE(layer_fixture, "online, a mean that is large beside the "
                                 "deviation costs no digits of the variance, "
                                 "with one copy as with two") {
  auto options = online_options(dtype::float64);
  for (std::size_t count : {1, 2}) {
    std::mt19937 random{3};
    auto copies = make_copies(system, options, count);
    execute_replication_callbacks(copies);
    stream seen;
    for (int step = 0; step < 4; ++step) {
      stream parts;
      for (std::size_t r = 0; r < count; ++r)
        parts.push_back(make_part(options, 8, random, 1e4));
      check_batch(copies, parts, seen);
    }
  }
}

TEST_CASE_FIXTURE(layer_fixture, "online statistics that were saved and "
                                 "restored go on with the same bits") {
  auto options = online_options(dtype::float32);
  std::mt19937 random{5};
  std::vector<stream> batches;
  for (int i = 0; i < 4; ++i)
    batches.push_back(
        {make_part(options, 3, random), make_part(options, 5, random)});
  auto feed = [](layers& copies, stream parts) {
    run_all(2, [&](std::size_t r) {
      std::ignore = copies[r]->forward(parts[r].view(), parts[r].view());
    });
    return parts;
  };
  auto whole = make_copies(system, options, 2);
  execute_replication_callbacks(whole);
  auto first = make_copies(system, options, 2);
  execute_replication_callbacks(first);
  for (int i = 0; i < 2; ++i) {
    feed(whole, batches[i]);
    feed(first, batches[i]);
  }
  auto second = make_copies(system, options, 2);
  for (auto& copy : second)
    for (const auto& saved : first[0]->replica().state())
      write(copy->replica().state(), saved.name, read({saved}, saved.name));
  execute_replication_callbacks(second);
  for (int i = 2; i < 4; ++i) {
    auto want = feed(whole, batches[i]);
    auto got = feed(second, batches[i]);
    for (std::size_t r = 0; r < 2; ++r)
      CHECK(got[r].bytes == want[r].bytes);
  }
  CHECK(state_of(*second[1]) == state_of(*whole[0]));
}

TEST_CASE_FIXTURE(layer_fixture, "evaluation uses the online statistics and "
                                 "changes none; before any, mean 0 and "
                                 "variance 1") {
  auto options = online_options();
  batch_norm_layer layer{system, options};
  std::mt19937 random{1};
  stream seen{make_part(options, 4, random)};
  auto x = make_part(options, 2, random);
  auto y = x;
  layer.replica().train(false);
  std::ignore = layer.forward(x.view(), y.view());
  reference::for_each({x}, [&](auto, auto, auto i) {
    check_near(y.get(i), x.get(i) / std::sqrt(1 + options.eps), 1e-10);
  });
  layer.replica().train(true);
  auto z = seen[0];
  std::ignore = layer.forward(seen[0].view(), z.view());
  layer.replica().train(false);
  auto before = state_of(layer);
  auto tape = layer.forward(x.view(), y.view());
  CHECK(tape.count() == 0);
  auto truth = truth_of(options, seen);
  reference::for_each({x}, [&](auto c, auto, auto i) {
    check_near(y.get(i), truth.y(c, x.get(i)), 1e-10);
  });
  CHECK(state_of(layer) == before);
}

TEST_CASE_FIXTURE(layer_fixture, "backward takes online statistics for "
                                 "constants and asks no other copy") {
  for (std::size_t count : {1, 2}) {
    auto options = online_options();
    auto copies = make_copies(system, options, count);
    execute_replication_callbacks(copies);
    std::mt19937 random{2};
    stream xs, dys;
    for (std::size_t r = 0; r < count; ++r) {
      xs.push_back(make_part(options, 3, random));
      dys.push_back(make_part(options, 3, random));
    }
    auto truth = truth_of(options, xs);
    auto dx = xs;
    run_all(count, [&](std::size_t r) {
      auto y = xs[r];
      auto tape = copies[r]->forward(xs[r].view(), y.view());
      copies[r]->backward(dys[r].view(), xs[r].view(), tape, dx[r].view());
    });
    reference::for_each(xs, [&](auto c, auto r, auto i) {
      check_near(dx[r].get(i), dys[r].get(i) * truth.inv_std[c], 1e-10);
    });
    CHECK(copies[0]->messages_sent() == count - 1);
  }
}

TEST_CASE_FIXTURE(layer_fixture, "online slave actors keep nothing for a "
                                 "backward pass, and refuse a state that does "
                                 "not fit") {
  batch_norm_stage stage{system, online_options()};
  callback_context context{"", 1};
  stage.on_data_parallel_replicate(context, 0);
  caf::scoped_actor self{system};
  std::mt19937 random{1};
  auto x = std::make_shared<tensor>(make_part(online_options(), 2, random));
  detail::request(self, stage.slave(), forward_atom_v,
                  shared_tensor{x->view(), x})
      .receive([](const shared_tensor&,
                  std::uint64_t pass_id) { CHECK(pass_id == 0); },
               [](const caf::error& reason) { FAIL(describe(reason)); });
  CHECK(x.use_count() <= 2);
  auto write = [&](std::string name, double_array values) {
    std::string text;
    detail::request(self, stage.slave(), write_state_atom_v, std::move(name),
                    std::move(values))
        .receive([] {},
                 [&](const caf::error& reason) { text = describe(reason); });
    return text;
  };
  CHECK(write("running_m2", {1, 2})
        == "shape_mismatch: layer stream: running_m2: expected 3 elements, got "
           "2");
  for (auto bad : {-1.0, 0.5, 0x1p60, std::nan("")})
    CHECK(contains(write("num_elements_tracked", {bad}),
                   "expected a whole number from 0 to 2^53"));
  CHECK(write("num_elements_tracked", {12}).empty());
}

TEST_CASE_FIXTURE(layer_fixture, "online counters that cannot count the batch "
                                 "are refused, alone as by a master, and "
                                 "nothing changes") {
  auto limit = std::numeric_limits<std::int64_t>::max();
  std::mt19937 random{9};
  auto options = online_options();
  auto x = make_part(options, 2, random);
  auto y = x;
  auto try_counter = [&](const char* name, std::int64_t value) {
    batch_norm_layer layer{system, options};
    for (const auto& array : layer.replica().state())
      if (array.name == name)
        std::get<std::span<std::int64_t>>(array.values)[0] = value;
    auto before = state_of(layer);
    auto bytes = y.bytes;
    auto got =
        outcome_of([&] { std::ignore = layer.forward(x.view(), y.view()); });
    if (got.first != errc::none) {
      CHECK(state_of(layer) == before);
      CHECK(y.bytes == bytes);
    }
    return got;
  };
  CHECK(try_counter("num_batches_tracked", limit)
        == std::pair{errc::malformed_message,
                     std::string{"layer stream: forward: num_batches_tracked "
                                 "9223372036854775807, expected 0 to "
                                 "9223372036854775806"}});
  CHECK(try_counter("num_batches_tracked", limit - 1).first == errc::none);
  CHECK(try_counter("num_batches_tracked", -1).first
        == errc::malformed_message);
  CHECK(try_counter("num_elements_tracked", limit - 7)
        == std::pair{errc::malformed_message,
                     std::string{"layer stream: forward: "
                                 "num_elements_tracked 9223372036854775800, "
                                 "expected 0 to 9223372036854775799 before 8 "
                                 "more"}});
  CHECK(try_counter("num_elements_tracked", limit - 8).first == errc::none);
  CHECK(try_counter("num_elements_tracked", -1).first
        == errc::malformed_message);
}

TEST_CASE_FIXTURE(layer_fixture, "batches that a lone slave is asked for "
                                 "together are all learned, or none") {
  auto limit = std::numeric_limits<std::int64_t>::max();
  std::mt19937 random{4};
  auto x = std::make_shared<tensor>(make_part(online_options(), 2, random));
  shared_tensor part{x->view(), x};
  auto options = online_options();
  for (bool online : {true, false}) {
    options.online = online;
    batch_norm_stage stage{system, options};
    for (const auto& array : stage.replica().state())
      if (array.name == "num_batches_tracked")
        std::get<std::span<std::int64_t>>(array.values)[0] = limit - 1;
    callback_context context{"", 1};
    stage.on_data_parallel_replicate(context, 0);
    caf::scoped_actor self{system};
    detail::request(self, stage.slave(), forward_atom_v,
                    shared_tensors{{part, part}})
        .receive([](const shared_tensors&,
                    std::uint64_t) { FAIL_CHECK("was answered"); },
                 [](const caf::error& reason) {
                   CHECK(describe(reason)
                         == "malformed_message: layer stream: forward: "
                            "num_batches_tracked 9223372036854775807, expected "
                            "0 to 9223372036854775806");
                 });
    stage.on_data_parallel_release();
    auto state = stage.replica().state();
    CHECK(stage.replica().num_batches_tracked() == limit - 1);
    CHECK(read(state, "running_mean") == std::vector<double>(3));
  }
}

TEST_CASE("a tape that is used again tells of its last pass alone") {
  std::mt19937 random{3};
  batch_norm_options options{.name = "bn", .channels = 5, .online = true};
  auto x = make_part(options, 7, random);
  auto y = x;
  auto want = batch_norm_replica{options}.forward_alone(x.view(), y.view());
  for (auto type : {dtype::float32, dtype::float64})
    for (std::int64_t channels : {3, 5}) {
      auto others = options;
      others.type = type;
      others.channels = channels;
      auto before = make_part(others, 2, random);
      auto used = batch_norm_replica{others}.forward_alone(before.view(),
                                                           before.view());
      auto again = x;
      auto tape = batch_norm_replica{options}.forward_alone(
          x.view(), again.view(), std::move(used));
      REQUIRE(tape.mean().type() == dtype::float32);
      CHECK(tape.mean().widened() == want.mean().widened());
      CHECK(tape.inv_std().widened() == want.inv_std().widened());
      CHECK(tape.count() == want.count());
      for (std::size_t i = 0; i < 7 * 5 * 4; ++i)
        REQUIRE(again.get(i) == y.get(i));
    }
}

TEST_CASE("an online update that lies is refused") {
  auto message = [](double_array running, std::int64_t seen) {
    batch_norm_message m;
    m.channels = 1;
    m.count = 2;
    m.values = {1, 0.5};
    m.update.online = true;
    m.update.running = std::move(running);
    m.update.num_elements_tracked = seen;
    std::array messages{identified<batch_norm_message>{0, std::move(m)}};
    return outcome_of([&] { std::ignore = merge_round(messages); }).first;
  };
  auto limit = std::numeric_limits<std::int64_t>::max();
  CHECK(message({1, 0.5}, 6) == errc::none);
  CHECK(message({}, 6) == errc::malformed_message);
  CHECK(message({1, 0.5}, -1) == errc::malformed_message);
  CHECK(message({1, 0.5}, limit - 1) == errc::malformed_message);
  batch_norm_options options{.channels = 1, .track_running_stats = false};
  options.online = true;
  CHECK(outcome_of([&] { options.validate(); }).first
        == errc::invalid_argument);
}

TEST_CASE("a part of a shared tensor is the same memory, and keeps it") {
  std::mt19937 random{1};
  auto x = std::make_shared<tensor>(make_part(online_options(), 5, random));
  shared_tensor whole{x->view(), x};
  auto part = whole.samples(1, 3);
  CHECK(x.use_count() == 3);
  CHECK(part.view().shape() == tensor_shape{3, 3, 4});
  CHECK(part.view().data() == x->bytes.data() + 12 * sizeof(double));
  CHECK(whole.samples(5, 0).view().empty());
  for (auto range :
       {std::pair{-1, 2}, std::pair{4, 2}, std::pair{6, 0}, std::pair{0, -1}}) {
    auto take = [&] { return whole.samples(range.first, range.second); };
    CHECK(outcome_of(take).first == errc::invalid_argument);
  }
}
