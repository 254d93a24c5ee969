// What a slave actor refuses, and who hears of it.

#include "tests/actors/stage_fixture.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE_FIXTURE(stage_fixture,
                  "a wrong x that waits behind others is refused "
                  "in its turn, and they are answered") {
  auto net = replicated(2);
  auto wide = float64_options;
  wide.channels = 4;
  constexpr std::size_t good = 3;
  std::vector<std::vector<tensor>> xs;
  std::vector<std::vector<decltype(c.forward(*net[0], {}))>> pending(2);
  for (std::size_t m = 0; m <= good; ++m) {
    xs.push_back({make_tensor(m < good ? float64_options : wide, 2, random),
                  make_tensor(float64_options, 3, random)});
    for (std::size_t r = 0; r < 2; ++r)
      pending[r].push_back(c.forward(*net[r], xs[m][r]));
  }
  for (std::size_t m = 0; m < good; ++m) {
    expectation want{float64_options, xs[m], xs[m]};
    for (std::size_t r = 0; r < 2; ++r)
      check_near(c.await_forward(std::move(pending[r][m])).value, want.y[r]);
  }
  auto reason = [&](std::size_t r) {
    return c.await_forward(std::move(pending[r][good])).reason;
  };
  auto mine = reason(0);
  CHECK_MESSAGE(code_of(mine) == errc::shape_mismatch, describe(mine));
  auto others = reason(1);
  CHECK_MESSAGE(code_of(others) == errc::participant_failed, describe(others));
}

TEST_CASE_FIXTURE(stage_fixture, "what goes wrong in one slave actor is told "
                                 "to its client and to all other copies, and "
                                 "the same modules work again") {
  auto net = make_stages(system, float64_options, 3);
  CHECK(outcome_of([&] { std::ignore = net[0]->slave(); }).first
        == errc::unregistered);
  auto x = make_tensor(float64_options, 2, random);
  auto wide = float64_options;
  wide.channels = 4;
  auto bad = make_tensor(wide, 2, random);
  for (std::size_t guilty = 0; guilty < 3; ++guilty) {
    execute_replication_callbacks(net);
    CHECK(outcome_of([&] { execute_replication_callbacks(net); }).first
          == errc::duplicate_identifier);
    std::vector<decltype(c.forward(*net[0], {}))> pending;
    for (std::size_t r = 0; r < 3; ++r)
      pending.push_back(c.forward(*net[r], r == guilty ? bad : x));
    for (std::size_t r = 0; r < 3; ++r) {
      auto got = c.await_forward(std::move(pending[r]));
      CHECK(code_of(got.reason)
            == (r == guilty ? errc::shape_mismatch : errc::participant_failed));
      CHECK(contains(describe(got.reason), "expected 3 channels"));
    }
    release_replicas(net);
  }
  execute_replication_callbacks(net);
  std::vector<decltype(c.forward(*net[0], {}))> pending;
  for (auto& stage : net)
    pending.push_back(c.forward(*stage, x));
  expectation want{float64_options, {x, x, x}, {x, x, x}};
  for (std::size_t r = 0; r < 3; ++r)
    check_near(c.await_forward(std::move(pending[r])).value, want.y[r]);
}

TEST_CASE_FIXTURE(stage_fixture, "passes behind one whose round fails are "
                                 "answered") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto first = c.forward(*net[0], x);
  auto second = c.forward(*net[0], x);
  net[1]->on_data_parallel_failure("no memory");
  CHECK(code_of(c.await_forward(std::move(first)).reason)
        == errc::participant_failed);
  auto late = c.await_forward(std::move(second)).reason;
  CHECK(code_of(late) == errc::stale);
  CHECK(contains(describe(late), "replica 1 gave up: no memory"));
}

TEST_CASE_FIXTURE(stage_fixture, "a copy whose registration is refused is not "
                                 "replicated, and can be with another "
                                 "identifier") {
  auto net = make_stages(system, float64_options, 3);
  callback_context context{"", 3};
  net[0]->on_data_parallel_replicate(context, 0);
  net[1]->on_data_parallel_replicate(context, 1);
  auto replicate = [&](std::int64_t id) {
    return outcome_of([&] { net[2]->on_data_parallel_replicate(context, id); })
        .first;
  };
  CHECK(replicate(1) == errc::duplicate_identifier);
  CHECK(outcome_of([&] { std::ignore = net[2]->slave(); }).first
        == errc::unregistered);
  REQUIRE(replicate(2) == errc::none);
  check_round(c, net, make_tensor(float64_options, 2, random));
}

TEST_CASE_FIXTURE(stage_fixture,
                  "a copy whose master is gone when it registers "
                  "names the layer") {
  auto check = [](auto& first, auto& second) {
    callback_context context{"", 2};
    first.on_data_parallel_replicate(context, 0);
    first.on_data_parallel_release();
    auto got =
        outcome_of([&] { second.on_data_parallel_replicate(context, 1); });
    CHECK(got.first == errc::master_down);
    CHECK_MESSAGE(got.second.starts_with("layer bn"), got.second);
  };
  batch_norm_stage stage{system, float64_options};
  auto other_stage = stage.clone();
  check(stage, other_stage);
  batch_norm_layer layer{system, float64_options};
  auto other_layer = layer.clone();
  check(layer, other_layer);
}

TEST_CASE_FIXTURE(stage_fixture, "a refused request that needs no other copy "
                                 "concerns its asker only") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto wide = float64_options;
  wide.channels = 4;
  train(c, net, false);
  auto bad = make_tensor(wide, 2, random);
  CHECK(code_of(c.await_forward(c.forward(*net[1], bad)).reason)
        == errc::shape_mismatch);
  auto pass_id = c.await_forward(c.forward(*net[1], x)).pass_id;
  CHECK(code_of(c.await_backward(c.backward(*net[1], pass_id, x)).reason)
        == errc::invalid_argument);
  train(c, net, true);
  check_round(c, net, x);
}

TEST_CASE_FIXTURE(stage_fixture, "a tensor that is none is refused as one of "
                                 "another shape, and the copy works on") {
  auto net = replicated(1);
  auto x = make_tensor(float64_options, 2, random);
  const std::string expected = "expected 3 channels, got [N, C, S] = [0, 0, 1]";
  const std::string call = "shape_mismatch: layer bn: forward: ";
  for (auto on : {true, false}) {
    train(c, net, on);
    auto pending = c.ask(*net[0], forward_atom_v, shared_tensor{});
    CHECK(describe(c.await_forward(std::move(pending)).reason)
          == call + "x: " + expected);
    caf::error reason;
    c.ask(*net[0], forward_atom_v, shared_tensors{{share(x), {}}})
        .receive([](const shared_tensors&, std::uint64_t) {},
                 [&](caf::error& why) { reason = std::move(why); });
    CHECK(describe(reason) == call + "x[1]: " + expected);
  }
  train(c, net, true);
  auto pass_id = c.await_forward(c.forward(*net[0], x)).pass_id;
  auto pending = c.ask(*net[0], backward_atom_v, pass_id, shared_tensor{});
  CHECK(describe(c.await_backward(std::move(pending)).reason)
        == "shape_mismatch: layer bn: backward: dy: " + expected);
  CHECK(describe(c.await_backward(c.backward(*net[0], pass_id, x)).reason)
        == describe({}));
}

TEST_CASE_FIXTURE(stage_fixture, "a pass ends as it began, in training, also "
                                 "where evaluation is asked for meanwhile") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto first = c.forward(*net[0], x);
  // When it is answered, that copy waits for the other.
  c.ask(*net[0], train_atom_v, false)
      .receive([] {}, [](const caf::error& why) { FAIL(describe(why)); });
  auto second = c.forward(*net[1], x);
  auto pass_ids = std::array{c.await_forward(std::move(first)).pass_id,
                             c.await_forward(std::move(second)).pass_id};
  REQUIRE(pass_ids == std::array<std::uint64_t, 2>{1, 1});
  auto backward = std::array{c.backward(*net[0], pass_ids[0], x),
                             c.backward(*net[1], pass_ids[1], x)};
  for (auto& pending : backward)
    CHECK(describe(c.await_backward(std::move(pending)).reason)
          == describe({}));
  CHECK(c.await_forward(c.forward(*net[0], x)).pass_id == 0);
}

TEST_CASE_FIXTURE(stage_fixture, "online, a refused backward pass concerns its "
                                 "asker only") {
  auto online = float64_options;
  online.online = true;
  auto net = replicated(2, online);
  auto x = make_tensor(online, 2, random);
  for (std::uint64_t pass_id : check_round(c, net, x))
    CHECK(code_of(c.await_backward(c.backward(*net[0], pass_id, x)).reason)
          == errc::invalid_argument);
  CHECK(code_of(c.await_backward(c.backward(*net[1], 7, x)).reason)
        == errc::invalid_argument);
  check_round(c, net, x);
}

TEST_CASE_FIXTURE(stage_fixture, "frozen, a refused backward pass concerns its "
                                 "asker only") {
  auto frozen = float64_options;
  frozen.frozen = true;
  auto net = replicated(2, frozen);
  auto x = make_tensor(frozen, 2, random);
  CHECK(code_of(c.await_backward(c.backward(*net[1], 7, x)).reason)
        == errc::invalid_argument);
  check_round(c, net, x);
}

TEST_CASE_FIXTURE(stage_fixture,
                  "a backward pass with a wrong pass id, at which "
                  "the other copies may be, is told to them") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto pass_ids = check_round(c, net, x);
  auto right = c.backward(*net[0], pass_ids[0], x);
  auto wrong = c.backward(*net[1], pass_ids[1] + 7, x);
  CHECK(code_of(c.await_backward(std::move(wrong)).reason)
        == errc::invalid_argument);
  CHECK(code_of(c.await_backward(std::move(right)).reason)
        == errc::participant_failed);
}

TEST_CASE_FIXTURE(stage_fixture, "a pass id is good for one backward pass, or "
                                 "is forgotten") {
  auto net = replicated(1);
  auto x = make_tensor(float64_options, 2, random);
  auto pass_id = c.await_forward(c.forward(*net[0], x)).pass_id;
  auto code = [&](std::uint64_t t) {
    return code_of(c.await_backward(c.backward(*net[0], t, x)).reason);
  };
  CHECK(code(pass_id + 1) == errc::invalid_argument);
  CHECK(code(pass_id) == std::nullopt);
  CHECK(code(pass_id) == errc::invalid_argument);
  pass_id = c.await_forward(c.forward(*net[0], x)).pass_id;
  c.ask(*net[0], forget_atom_v, pass_id).receive([] {}, [](caf::error&) {});
  CHECK(code(pass_id) == errc::invalid_argument);
}

TEST_CASE_FIXTURE(stage_fixture, "a slave that has ended keeps no tensor of a "
                                 "pass id, whoever has its handle") {
  auto net = replicated(1);
  auto x = std::make_shared<tensor>(make_tensor(float64_options, 2, random));
  auto slave = net[0]->slave();
  auto pending = c.ask(*net[0], forward_atom_v, shared_tensor{x->view(), x});
  CHECK(c.await_forward(std::move(pending)).pass_id != 0);
  std::weak_ptr<tensor> watch = x;
  x.reset();
  CHECK_FALSE(watch.expired());
  release_replicas(net);
  CHECK(watch.expired());
}

TEST_CASE_FIXTURE(stage_fixture, "a pass id whose backward pass waits for the "
                                 "other copies is used") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  std::vector<decltype(c.forward(*net[0], {}))> forward;
  for (auto& stage : net)
    forward.push_back(c.forward(*stage, x));
  std::vector<std::uint64_t> pass_ids;
  for (auto& pending : forward)
    pass_ids.push_back(c.await_forward(std::move(pending)).pass_id);
  auto first = c.backward(*net[0], pass_ids[0], x);
  std::optional<errc> refusal;
  c.ask(*net[0], forget_atom_v, pass_ids[0])
      .receive([] {}, [&](const caf::error& why) { refusal = code_of(why); });
  CHECK(refusal == errc::invalid_argument);
  auto second = c.backward(*net[1], pass_ids[1], x);
  CHECK(code_of(c.await_backward(std::move(first)).reason) == std::nullopt);
  CHECK(code_of(c.await_backward(std::move(second)).reason) == std::nullopt);
}

TEST_CASE_FIXTURE(stage_fixture, "slave actors that go backward through "
                                 "different passes are told so, also behind "
                                 "relays") {
  for (std::int64_t fan_in : {16, 2}) {
    auto options = float64_options;
    options.fan_in = fan_in;
    auto net = replicated(5, options);
    auto x = make_tensor(options, 2, random);
    std::vector<std::uint64_t> pass_ids;
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<decltype(c.forward(*net[0], {}))> pending;
      for (auto& stage : net)
        pending.push_back(c.forward(*stage, x));
      pass_ids.clear();
      for (auto& one : pending)
        pass_ids.push_back(c.await_forward(std::move(one)).pass_id);
    }
    --pass_ids[3];
    std::vector<decltype(c.backward(*net[0], 0, {}))> pending;
    for (std::size_t r = 0; r < net.size(); ++r)
      pending.push_back(c.backward(*net[r], pass_ids[r], x));
    for (auto& one : pending) {
      auto reason = c.await_backward(std::move(one)).reason;
      CHECK(code_of(reason) == errc::invalid_argument);
      CHECK(contains(describe(reason), "of call 1 of the layer"));
      CHECK(contains(describe(reason), "of call 2;"));
    }
  }
}

TEST_CASE_FIXTURE(stage_fixture, "passes that a slave actor has not finished "
                                 "when it is released are answered") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  std::vector<decltype(c.forward(*net[0], {}))> pending;
  pending.push_back(c.forward(*net[1], x));
  pending.push_back(c.forward(*net[1], x));
  release_replicas(net);
  for (auto& p : pending) {
    auto reason = c.await_forward(std::move(p)).reason;
    CAPTURE(describe(reason));
    auto code = code_of(reason);
    // Of a request that was still in the mailbox CAF itself tells the sender.
    CHECK((code == errc::participant_down || code == errc::master_down
           || reason == caf::sec::request_receiver_down));
  }
}

TEST_CASE_FIXTURE(stage_fixture, "what a slave was asked when it was killed is "
                                 "answered by that") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto waiting = c.forward(*net[0], x);
  // It has taken the request when it has answered this one.
  c.ask(*net[0], get_metrics_atom_v)
      .receive([](const sync_metrics&) {}, [](const caf::error&) {});
  caf::anon_send_exit(net[0]->slave(), caf::exit_reason::kill);
  CHECK(describe(c.await_forward(std::move(waiting)).reason)
        == "participant_down: layer bn: replica 0 has exited (kill)");
}

TEST_CASE_FIXTURE(stage_fixture, "when copy 0's slave is killed its master "
                                 "ends, and who waits is told by what") {
  auto net = replicated(2);
  auto waiting = c.forward(*net[1], make_tensor(float64_options, 2, random));
  // The master has had the round's message when it has answered this one.
  c.ask(*net[1], get_metrics_atom_v)
      .receive([](const sync_metrics&) {}, [](const caf::error&) {});
  caf::anon_send_exit(net[0]->slave(), caf::exit_reason::kill);
  CHECK(describe(c.await_forward(std::move(waiting)).reason)
        == "master_down: layer bn, round 1: the master has exited "
           "(participant_down: layer bn: replica 0 has exited (kill))");
}

TEST_CASE_FIXTURE(stage_fixture, "a slave whose master is gone says so, under "
                                 "its layer's name") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  // Answered when the master has exited: the next request finds none.
  auto waiting = c.forward(*net[1], x);
  net[0]->on_data_parallel_release();
  CHECK(code_of(c.await_forward(std::move(waiting)).reason)
        == errc::master_down);
  auto later = describe(c.await_forward(c.forward(*net[1], x)).reason);
  CHECK_MESSAGE(later.starts_with("master_down: layer bn: replica 1: the "
                                  "master is down ("),
                later);
  std::string metrics;
  c.ask(*net[1], get_metrics_atom_v)
      .receive([](const sync_metrics&) {},
               [&](const caf::error& reason) { metrics = describe(reason); });
  CHECK_MESSAGE(metrics.starts_with("master_down: layer bn: the master is "
                                    "down ("),
                metrics);
}
