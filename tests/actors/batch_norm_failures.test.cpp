#include "syncnorm/batch_norm_stage.hpp"

#include "tests/actors/replicated.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE_FIXTURE(replicated, "a copy that is called with the wrong arguments "
                              "gets that error, every other copy learns of "
                              "it, and nothing is written") {
  for (std::size_t guilty = 0; guilty < copy_count; ++guilty) {
    CAPTURE(guilty);
    auto x = make_x(7, 3);
    auto y = x;
    auto before = y.bytes;
    auto thrown = on_threads(copy_count, [&](std::size_t r) {
      if (r == guilty)
        std::ignore = copies[r]->forward(x.view(), y.view());
      else
        forward(*copies[r], r);
    });
    for (std::size_t r = 0; r < copy_count; ++r) {
      auto got = outcome(thrown[r]);
      auto code = got.first;
      const auto& text = got.second;
      CAPTURE(text);
      CHECK(contains(text, "layer bn: forward: x: expected 2 channels, got "
                           "[N, C, S] = [1, 3, 1]"));
      CHECK(code
            == (r == guilty ? errc::shape_mismatch : errc::participant_failed));
      if (r != guilty)
        // After the first time a good round has gone before.
        CHECK(contains(
            text, "layer bn, round " + std::to_string(1 + (guilty != 0))
                      + ": replica " + std::to_string(guilty) + " gave up"));
    }
    CHECK(y.bytes == before);
    for (auto& copy : copies)
      CHECK(read(copy->replica().state(), "num_batches_tracked")[0]
            == static_cast<double>(guilty));
    check_works_again(copies);
  }
}

TEST_CASE_FIXTURE(replicated, "a copy that goes backward by a tape of no "
                              "forward pass gets that error, and every other "
                              "copy learns of it") {
  std::vector<batch_norm_tape> tapes(copy_count);
  run_all(copy_count,
          [&](std::size_t r) { tapes[r] = forward(*copies[r], r); });
  tapes[1] = {};
  auto thrown = on_threads(copy_count, [&](std::size_t r) {
    auto x = make_x(r);
    auto dy = x;
    copies[r]->backward(dy.view(), x.view(), tapes[r], dy.view());
  });
  for (std::size_t r = 0; r < copy_count; ++r) {
    auto [code, text] = outcome(thrown[r]);
    CHECK(contains(text, "layer bn: backward: tape: expected that of a forward "
                         "pass of this layer"));
    CHECK(code == (r == 1 ? errc::invalid_argument : errc::participant_failed));
  }
  check_works_again(copies);
}

TEST_CASE_FIXTURE(replicated, "every argument is checked") {
  auto good = make_x(0);
  auto single = make_x(0, 2, dtype::float32);
  tensor longer{make_layout(dtype::float64, std::array<std::int64_t, 2>{2, 2})};
  auto& layer = *copies[0];
  release_replicas(copies);
  batch_norm_layer alone{system, make_options()};
  CHECK(outcome_of([&] { alone.forward(single.view(), single.view()); })
        == std::pair{errc::dtype_mismatch,
                     std::string{"layer bn: forward: x: expected float64, got "
                                 "float32"}});
  CHECK(outcome_of([&] { alone.forward(good.view(), longer.view()); }).first
        == errc::shape_mismatch);
  auto tape = alone.forward(good.view(), good.view());
  CHECK(contains(outcome_of([&] {
                   alone.backward(longer.view(), good.view(), tape,
                                  good.view());
                 }).second,
                 "backward: dy: expected the layout of x"));
  CHECK(outcome_of([&] {
          alone.backward(good.view(), good.view(), batch_norm_tape{},
                         good.view());
        }).first
        == errc::invalid_argument);
  CHECK(outcome_of([&] { forward(layer, 0); }).first == errc::unregistered);
}

TEST_CASE_FIXTURE(layer_fixture, "the tape of another layer's forward pass, of "
                                 "another dtype or channels, is refused") {
  auto options_of = [](dtype type, std::int64_t channels) {
    return batch_norm_options{
        .name = to_string(type), .channels = channels, .type = type};
  };
  auto try_tape = [&](dtype type, dtype other, std::int64_t channels) {
    batch_norm_layer layer{system, options_of(type, 2)};
    batch_norm_layer stranger{system, options_of(other, channels)};
    auto x = make_x(1, 2, type);
    auto theirs = make_x(1, channels, other);
    auto tape = stranger.forward(theirs.view(), theirs.view());
    auto dx = x;
    return outcome_of(
        [&] { layer.backward(x.view(), x.view(), tape, dx.view()); });
  };
  CHECK(try_tape(dtype::float32, dtype::float64, 2)
        == std::pair{errc::invalid_argument,
                     std::string{"layer float32: backward: tape: expected that "
                                 "of a forward pass of this layer, float32 "
                                 "statistics of 2 channels on cpu, got float64 "
                                 "statistics of 2 channels on cpu"}});
  CHECK(contains(try_tape(dtype::float64, dtype::float32, 2).second,
                 "got float32 statistics of 2 channels"));
  CHECK(contains(try_tape(dtype::bfloat16, dtype::float32, 3).second,
                 "got float32 statistics of 3 channels"));
  // The statistics are what a tape has, and both layers' are float32.
  CHECK(try_tape(dtype::bfloat16, dtype::float32, 2).first == errc::none);
}

TEST_CASE_FIXTURE(replicated, "an exception outside of the layer, in one "
                              "copy's forward, reaches all others at once") {
  for (std::size_t guilty = 0; guilty < copy_count; ++guilty) {
    auto thrown = on_threads(copy_count, [&](std::size_t r) {
      if (r != guilty) {
        forward(*copies[r], r);
        return;
      }
      fail_replica(copies[r].get(), "the disk is on fire");
      throw std::runtime_error{"the disk is on fire"};
    });
    for (std::size_t r = 0; r < copy_count; ++r) {
      auto [code, text] = outcome(thrown[r]);
      if (r == guilty) {
        CHECK(text == "the disk is on fire");
      } else {
        CHECK(code == errc::participant_failed);
        CHECK(contains(text, "replica " + std::to_string(guilty)
                                 + " gave up: the disk is on fire"));
      }
    }
    check_works_again(copies);
  }
}

TEST_CASE_FIXTURE(replicated, "a copy that goes backward while the others go "
                              "forward is named to all") {
  std::vector<batch_norm_tape> tapes(copy_count);
  run_all(copy_count,
          [&](std::size_t r) { tapes[r] = forward(*copies[r], r); });
  auto thrown = on_threads(copy_count, [&](std::size_t r) {
    auto x = make_x(r);
    auto dx = x;
    if (r == 1)
      copies[r]->backward(x.view(), x.view(), tapes[r], dx.view());
    else
      forward(*copies[r], r);
  });
  for (const auto& x : thrown)
    CHECK(outcome(x)
          == std::pair{errc::invalid_argument,
                       std::string{"layer bn, round 2: replica 1 sent a "
                                   "backward message, replica 0 a forward "
                                   "message; all replicas must make the same "
                                   "calls in the same order"}});
  check_works_again(copies);
}

TEST_CASE_FIXTURE(layer_fixture, "copies that call the layer a different "
                                 "number of times: those who wait learn for "
                                 "whom") {
  auto options = make_options();
  options.deadline = std::chrono::milliseconds{50};
  auto copies = make_copies(system, options, copy_count);
  execute_replication_callbacks(copies);
  auto thrown = on_threads(copy_count, [&](std::size_t r) {
    forward(*copies[r], r);
    if (r == 1)
      forward(*copies[r], r);
  });
  CHECK(outcome(thrown[0]).first == errc::none);
  CHECK(outcome(thrown[1])
        == std::pair{errc::deadline_exceeded,
                     std::string{"layer bn, round 2: waited 0.05 s for "
                                 "replicas 0, 2; have replica 1"}});
  CHECK(outcome(thrown[2]).first == errc::none);
  auto slow = make_copies(system, make_options(), copy_count);
  execute_replication_callbacks(slow);
  check_works(slow);
}

TEST_CASE_FIXTURE(replicated, "copies that go backward through different "
                              "passes are told so, and learn no gradient") {
  std::vector<std::vector<batch_norm_tape>> tapes(copy_count);
  run_all(copy_count, [&](std::size_t r) {
    for (int pass = 0; pass < 2; ++pass)
      tapes[r].push_back(forward(*copies[r], r));
  });
  auto thrown = on_threads(copy_count, [&](std::size_t r) {
    auto x = make_x(r);
    auto dx = x;
    copies[r]->backward(x.view(), x.view(), tapes[r][r == 1 ? 0 : 1],
                        dx.view());
  });
  for (const auto& x : thrown)
    CHECK(outcome(x)
          == std::pair{errc::invalid_argument,
                       std::string{"layer bn, round 3: replica 1 sent sums of "
                                   "call 1 of the layer, replica 0 of call 2; "
                                   "all replicas must pass backward through "
                                   "their calls in the same order"}});
  for (auto& copy : copies)
    for (const auto& gradient : copy->replica().gradients())
      CHECK(read({gradient}, gradient.name) == std::vector<double>(2, 0));
  check_works_again(copies);
}

TEST_CASE_FIXTURE(replicated, "callbacks that run twice are refused, and the "
                              "first replication stays good") {
  auto [code, text] =
      outcome_of([&] { execute_replication_callbacks(copies); });
  CHECK(code == errc::duplicate_identifier);
  CHECK(text
        == "layer bn: the replication callback of copy 0 runs on a module that "
           "is copy 0 already; release it first");
  check_works(copies);
  check_works_again(copies);
}

TEST_CASE_FIXTURE(layer_fixture, "a pass of a copy in which another thread is "
                                 "in a pass is refused, and so is its release; "
                                 "the other one goes on") {
  auto copies = make_copies(system, make_options(), 2);
  execute_replication_callbacks(copies);
  std::pair<errc, std::string> second;
  std::pair<errc, std::string> release;
  run_all(2, [&](std::size_t r) {
    if (r == 1) {
      while (copies[0]->messages_sent() == 0)
        std::this_thread::yield();
      second = outcome_of([&] { forward(*copies[0], 0); });
      release = outcome_of([&] { copies[0]->on_data_parallel_release(); });
    }
    forward(*copies[r], r);
  });
  CHECK(second.first == errc::invalid_argument);
  CHECK(second.second
        == "layer bn: forward: another thread is in a pass of this copy: one "
           "thread uses a copy at a time");
  CHECK(release.first == errc::invalid_argument);
  CHECK(release.second
        == "layer bn: release: another thread is in a pass of this copy: one "
           "thread uses a copy at a time");
  CHECK(copies[0]->replica().num_batches_tracked() == 1);
}

TEST_CASE_FIXTURE(layer_fixture, "a copy that is used before replication is "
                                 "refused in training, and works after it") {
  auto copies = make_copies(system, make_options(), copy_count);
  auto [code, text] = outcome_of([&] { forward(*copies[1], 1); });
  CHECK(code == errc::unregistered);
  CHECK(text
        == "layer bn: forward: this copy was not told whose copy it is: run "
           "execute_replication_callbacks first");
  copies[1]->replica().train(false);
  CHECK(outcome_of([&] { forward(*copies[1], 1); }).first == errc::none);
  copies[1]->replica().train(true);
  execute_replication_callbacks(copies);
  check_works(copies);
}

TEST_CASE_FIXTURE(layer_fixture, "copies of different channels or dtype differ "
                                 "before any callback runs") {
  auto copies = make_copies(system, make_options(), copy_count);
  auto options = make_options();
  options.channels = 5;
  copies[2] = std::make_unique<batch_norm_layer>(system, options);
  auto [code, text] =
      outcome_of([&] { execute_replication_callbacks(copies); });
  CHECK(code == errc::invalid_argument);
  CHECK(text
        == "execute_replication_callbacks: copy 2 differs from copy 0 at the "
           "root: expected BatchNorm(2, float64), found BatchNorm(5, float64)");
  copies[2] = std::make_unique<batch_norm_layer>(copies[0]->clone());
  execute_replication_callbacks(copies);
  check_works(copies);
}

TEST_CASE_FIXTURE(layer_fixture, "copies whose options make other results "
                                 "differ before any callback runs, as threads "
                                 "and as actors") {
  auto found = [&](auto change) {
    batch_norm_options usual{.name = "bn", .channels = 2};
    auto other = usual;
    change(other);
    auto refusal = [&]<class T>(T first, T second) {
      auto [code, text] = outcome_of([&] {
        execute_replication_callbacks(std::vector<T*>{&first, &second});
      });
      CHECK(code == errc::invalid_argument);
      CHECK(outcome_of([&] {
              execute_replication_callbacks(std::vector<T*>{&first});
            }).first
            == errc::none);
      return text;
    };
    auto text = refusal(batch_norm_layer{system, usual},
                        batch_norm_layer{system, other});
    CHECK(refusal(batch_norm_stage{system, usual},
                  batch_norm_stage{system, other})
          == text);
    const std::string before =
        "execute_replication_callbacks: copy 1 differs from copy 0 at the "
        "root: expected BatchNorm(2, float32), found BatchNorm(2, float32, ";
    REQUIRE(text.starts_with(before));
    return text.substr(before.size());
  };
  CHECK(found([](auto& x) { x.eps = 1e-3; }) == "eps=0.001)");
  CHECK(found([](auto& x) { x.mode = eps_mode::clamp; }) == "mode=clamp)");
  CHECK(found([](auto& x) { x.momentum = std::nullopt; }) == "momentum=none)");
  CHECK(found([](auto& x) { x.momentum = 0.3; }) == "momentum=0.3)");
  CHECK(found([](auto& x) { x.affine = false; }) == "affine=false)");
  CHECK(found([](auto& x) { x.track_running_stats = false; })
        == "track_running_stats=false)");
  CHECK(found([](auto& x) { x.online = true; }) == "online=true)");
  CHECK(found([](auto& x) {
          x.eps = 0;
          x.frozen = true;
        })
        == "eps=0, frozen=true)");
}

TEST_CASE_FIXTURE(layer_fixture, "copies may differ in name, deadline, fan-in, "
                                 "state and training") {
  batch_norm_layer first{system, make_options()};
  auto options = make_options();
  options.name = "other";
  options.deadline = std::chrono::seconds{7};
  options.fan_in = 2;
  batch_norm_layer second{system, options};
  second.replica().train(false);
  std::vector copies{&first, &second};
  execute_replication_callbacks(copies);
  CHECK(first.kind() == second.kind());
  release_replicas(copies);
}

TEST_CASE_FIXTURE(replicated, "a copy that goes away fails the round of the "
                              "others") {
  auto thrown = on_threads(copy_count, [&](std::size_t r) {
    if (r == 2)
      copies[r]->on_data_parallel_release();
    else
      forward(*copies[r], r);
  });
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(outcome(thrown[r]).first == errc::participant_down);
    CHECK(contains(outcome(thrown[r]).second, "replica 2 is down"));
  }
  check_works_again(copies);
}

TEST_CASE_FIXTURE(replicated, "the master's end fails the round of the "
                              "others, by an error that names the layer") {
  auto thrown = on_threads(copy_count, [&](std::size_t r) {
    if (r == 0)
      copies[r]->on_data_parallel_release();
    else
      forward(*copies[r], r);
  });
  for (std::size_t r = 1; r < copy_count; ++r) {
    CHECK(outcome(thrown[r]).first == errc::master_down);
    CHECK(outcome(thrown[r]).second.starts_with("layer "));
  }
  check_works_again(copies);
}

TEST_CASE_FIXTURE(layer_fixture, "options that make no sense are refused, by "
                                 "name") {
  auto refused = [&](auto change) {
    auto options = make_options();
    change(options);
    return outcome_of([&] { batch_norm_layer{system, options}; });
  };
  auto text = [&](auto change) {
    auto [code, what] = refused(change);
    CHECK(code == errc::invalid_argument);
    return what;
  };
  CHECK(contains(text([](auto& x) { x.channels = 0; }),
                 "channels: expected 1 to 281474976710656, got 0"));
  CHECK(contains(text([](auto& x) { x.channels = max_channels + 1; }),
                 "channels: expected 1 to 281474976710656, got "
                 "281474976710657"));
  CHECK(contains(text([](auto& x) { x.type = static_cast<dtype>(4); }),
                 "type: expected float32, float64, float16 or bfloat16"));
  CHECK(contains(text([](auto& x) { x.eps = -1; }), "eps"));
  CHECK(contains(text([](auto& x) { x.eps = INFINITY; }),
                 "eps: expected 0 or more, and finite, got inf"));
  CHECK(contains(text([](auto& x) { x.mode = static_cast<eps_mode>(2); }),
                 "mode: expected plus or clamp, got 2"));
  CHECK(contains(text([](auto& x) { x.momentum = 1.5; }),
                 "momentum: expected [0, 1], got 1.5"));
  CHECK(contains(text([](auto& x) { x.name = ""; }), "name"));
  CHECK(contains(text([](auto& x) { x.deadline = caf::timespan{0}; }),
                 "deadline"));
  CHECK(contains(text([](auto& x) {
                   x.frozen = true;
                   x.track_running_stats = false;
                 }),
                 "frozen"));
  CHECK(refused([](auto& x) {
          x.where = {device_type::cuda, 99};
        }).first
        == errc::device_unavailable);
}
