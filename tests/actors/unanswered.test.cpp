// Passes that a device was given and that could not be answered.

#include "actors/batch_norm_slave.hpp"
#include "tests/actors/together.hpp"
#include "tests/kernels/emulated_devices.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

device gpu(std::size_t index) {
  return {device_type::cuda, static_cast<int>(index)};
}

/// Two emulated devices, declared before the system, so that every actor has
/// let go of them.
struct unanswered_fixture {
  testing::emulated_devices devices{2};
  layer_fixture base;
  caf::actor_system& system = base.system;

  ~unanswered_fixture() {
    devices.go();
    devices.drain();
    for (const auto& fault : devices.faults())
      FAIL_CHECK(fault);
  }

  batch_norm_options options_on(std::size_t index, bool online) {
    batch_norm_options result{.name = "bn", .channels = 3, .online = online};
    result.type = dtype::float64;
    result.where = gpu(index);
    result.stream = device_stream::make(devices, result.where);
    return result;
  }

  /// `count` copies on devices in turn.
  slaves make_slaves(std::size_t count, bool online) {
    batch_norm_stage model{system, options_on(0, online)};
    std::vector<std::unique_ptr<batch_norm_stage>> stages;
    for (std::size_t r = 0; r < count; ++r)
      stages.push_back(
          std::make_unique<batch_norm_stage>(model.clone_to(gpu(r % 2))));
    execute_replication_callbacks(stages);
    return {system, std::move(stages)};
  }
};

/// `batches` batches of 1, 2, 3, ... samples, the same for all copies.
std::vector<shared_tensor> make_batches(std::size_t batches) {
  std::mt19937 random{5};
  std::vector<shared_tensor> result;
  for (std::size_t k = 0; k < batches; ++k) {
    std::array sizes{static_cast<std::int64_t>(k + 1), std::int64_t{3}};
    auto x = std::make_shared<tensor>(make_layout(dtype::float64, sizes));
    fill(*x, random, 10, 3);
    result.emplace_back(x->view(), x);
  }
  return result;
}

using pending_type = decltype(std::declval<slaves&>().ask(
    0, std::declval<std::vector<shared_tensor>>()));

/// Asks all copies for them.
std::vector<pending_type> ask_all(slaves& to,
                                  const std::vector<shared_tensor>& xs) {
  std::vector<pending_type> result;
  for (std::size_t r = 0; r < to.stages.size(); ++r)
    result.push_back(to.ask(r, xs));
  return result;
}

caf::error error_of(pending_type pending) {
  caf::error result;
  std::move(pending).receive(
      [](const shared_tensors&, std::uint64_t) {},
      [&](const caf::error& reason) { result = reason; });
  return result;
}

void answer_all(slaves& to, const std::vector<shared_tensor>& xs) {
  for (auto& x : ask_all(to, xs))
    CHECK(describe(error_of(std::move(x))) == describe({}));
}

double batches_tracked(slaves& to, const batch_norm_slave_actor& slave) {
  double result = -1;
  compat::request(to.self, slave, read_state_atom_v,
                  std::string{"num_batches_tracked"})
      .receive([&](const double_array& n) { result = n[0]; },
               [](const caf::error& reason) { FAIL(describe(reason)); });
  return result;
}

/// Until each copy has learned from that many batches.
void await_batches(slaves& to, double batches) {
  for (auto& stage : to.stages)
    while (batches_tracked(to, stage->slave()) != batches) {
    }
}

/// Answers the first pass at once, and the second when it is asked whether that
/// is overdue. Says how many it was sent when it is asked for slaves.
class slow_master : public batch_norm_master_actor::base {
public:
  using super = batch_norm_master_actor::base;
  using super::super;

  behavior_type make_behavior() override {
    return {
        [](register_slave_atom, std::int64_t) { return slave_ticket{}; },
        [](run_slave_atom, round_tag, const batch_norm_message&) {
          return batch_norm_reply{};
        },
        [](run_slave_atom, round_tag, const batch_norm_message&,
           const detail::reply_slot&) {},
        [this](run_master_atom, const batch_norm_message& x) {
          std::array all{identified<batch_norm_message>{0, x}};
          auto promise = make_response_promise<batch_norm_reply>();
          if (++rounds_ == 1)
            promise.deliver(merge_round(all));
          else
            late_.emplace(promise, merge_round(all));
          return promise;
        },
        [](run_master_atom, const batch_norm_message&,
           const detail::reply_slot&) {},
        [this](nr_slaves_atom) { return rounds_; },
        [](get_metrics_atom) { return sync_metrics{}; },
        [](give_up_atom, round_tag, const std::string&) {},
        [](give_up_atom, round_tag, const std::string&,
           const detail::reply_slot&) {},
        [this](check_deadline_atom) {
          late_->first.deliver(std::move(late_->second));
        },
        [](register_relay_atom, std::int64_t, std::int64_t) {
          return slave_ticket{};
        },
        [](run_relay_atom, round_tag, const relay_parts&) {
          return batch_norm_reply{};
        },
        [](round_failed_atom, round_tag, const caf::error&) {},
        [](report_late_atom, round_tag, caf::timespan) {},
    };
  }

private:
  std::uint64_t rounds_ = 0;
  std::optional<std::pair<caf::typed_response_promise<batch_norm_reply>,
                          batch_norm_reply>>
      late_;
};

} // namespace

TEST_CASE_FIXTURE(unanswered_fixture, "a copy that ends before its device has "
                                      "done a pass gives back what it had "
                                      "learned from the passes answered") {
  auto xs = make_batches(5);
  for (bool online : {true, false})
    for (std::size_t count : {1, 2}) {
      CAPTURE(online);
      CAPTURE(count);
      auto want = make_slaves(count, online);
      answer_all(want, {xs[0], xs[1]});
      auto to = make_slaves(count, online);
      answer_all(to, {xs[0], xs[1]});
      devices.hold();
      auto first = ask_all(to, {xs[2]});
      auto second = ask_all(to, {xs[3], xs[4]});
      await_batches(to, 5);
      release_replicas(to.stages);
      devices.go();
      for (auto* pending : {&first, &second})
        for (auto& x : *pending)
          CHECK(error_of(std::move(x)) == errc::participant_down);
      CHECK(to.state() == want.state());
    }
}

TEST_CASE_FIXTURE(unanswered_fixture, "a pass whose device fails is taken back "
                                      "with those behind it, which get the "
                                      "same error") {
  std::size_t count = 1;
  SUBCASE("alone") {}
  SUBCASE("two copies") {
    count = 2;
  }
  auto xs = make_batches(4);
  auto to = make_slaves(count, true);
  answer_all(to, {xs[0]});
  devices.hold();
  auto first = ask_all(to, {xs[1]});
  auto second = ask_all(to, {xs[2], xs[3]});
  await_batches(to, 4);
  devices.break_device(0);
  devices.break_device(1);
  devices.go();
  for (std::size_t r = 0; r < count; ++r) {
    auto reason = error_of(std::move(first[r]));
    CHECK(code_of(reason) == errc::device_failure);
    CHECK(describe(error_of(std::move(second[r]))) == describe(reason));
    CHECK(batches_tracked(to, to.stages[r]->slave()) == 1);
  }
}

TEST_CASE_FIXTURE(unanswered_fixture, "a pass whose last kernel cannot be "
                                      "launched is taken back") {
  std::size_t count = 1;
  SUBCASE("alone") {}
  SUBCASE("two copies") {
    count = 2;
  }
  auto xs = make_batches(2);
  auto want = make_slaves(count, true);
  auto to = make_slaves(count, true);
  for (auto* x : {&want, &to})
    answer_all(*x, {xs[0]});
  devices.refuse_launch("normalize");
  for (auto& x : ask_all(to, {xs[1]}))
    CHECK(code_of(error_of(std::move(x))) == errc::device_failure);
  CHECK(to.state() == want.state());
}

TEST_CASE_FIXTURE(unanswered_fixture, "a backward pass that is not answered "
                                      "leaves no gradient") {
  auto to = make_slaves(2, false);
  auto xs = make_batches(2);
  std::vector<std::uint64_t> pass_ids;
  for (auto& x : ask_all(to, {xs[1]}))
    std::move(x).receive(
        [&](const shared_tensors&, std::uint64_t pass_id) {
          pass_ids.push_back(pass_id);
        },
        [](const caf::error& reason) { FAIL(describe(reason)); });
  auto backward = [&](std::size_t r) {
    return compat::request(to.self, to.stages[r]->slave(), backward_atom_v,
                           pass_ids[r], xs[1]);
  };
  auto gradient = [&](std::size_t r) {
    return read(to.stages[r]->replica().gradients(), "bias");
  };
  std::vector<decltype(backward(0))> pending;
  SUBCASE("as the copy ends") {
    devices.hold();
    for (std::size_t r = 0; r < 2; ++r)
      pending.push_back(backward(r));
    // Answered behind it: it has been enqueued.
    await_batches(to, 1);
    release_replicas(to.stages);
    devices.go();
  }
  SUBCASE("as its last kernel cannot be launched") {
    devices.refuse_launch("add_arrays");
    for (std::size_t r = 0; r < 2; ++r)
      pending.push_back(backward(r));
  }
  for (auto& x : pending)
    std::move(x).receive([](const shared_tensor&) { FAIL("was answered"); },
                         [](const caf::error&) {});
  release_replicas(to.stages);
  for (std::size_t r = 0; r < 2; ++r)
    CHECK(gradient(r) == std::vector<double>(3, 0));
}

TEST_CASE_FIXTURE(unanswered_fixture, "what is written to a copy on a device "
                                      "is answered behind the passes before "
                                      "it, so that no pass takes it back") {
  auto xs = make_batches(1);
  auto to = make_slaves(1, false);
  auto write = [&] {
    return compat::request(to.self, to.stages[0]->slave(), write_state_atom_v,
                           std::string{"running_mean"}, double_array{1, 2, 3});
  };
  auto outcome = [](auto pending) {
    caf::error result;
    std::move(pending).receive(
        [] {}, [&](const caf::error& reason) { result = reason; });
    return result;
  };
  devices.hold();
  auto pass = ask_all(to, xs);
  auto early = write();
  await_batches(to, 1);
  release_replicas(to.stages);
  CHECK(outcome(std::move(early)) == errc::participant_down);
  CHECK(error_of(std::move(pass[0])) == errc::participant_down);
  devices.go();
  execute_replication_callbacks(to.stages);
  CHECK(describe(outcome(write())) == describe({}));
  CHECK(to.state()[6] == 1);
}

TEST_CASE_FIXTURE(unanswered_fixture, "the reply of a round comes too late "
                                      "when a pass before it has failed") {
  auto xs = make_batches(2);
  auto master = system.spawn<slow_master>();
  auto replica = std::make_shared<batch_norm_replica>(options_on(0, false));
  auto registered = std::make_shared<future_result<bool>>();
  auto ended = std::make_shared<future_result<bool>>();
  detail::slave_role role;
  role.master = master;
  // The device is held for longer than any.
  role.deadline = std::chrono::milliseconds{100};
  role.registered = std::make_shared<future_writer<bool>>(registered);
  role.ended = std::make_shared<future_writer<bool>>(ended);
  batch_norm_slave_actor slave =
      system.spawn<detail::batch_norm_slave>(replica, std::move(role));
  slaves to{system, {}};
  auto ask = [&](const shared_tensor& x) {
    return compat::request(to.self, slave, forward_atom_v, shared_tensors{{x}});
  };
  devices.hold();
  auto first = ask(xs[0]);
  while (batches_tracked(to, slave) != 1) {
  }
  auto second = ask(xs[1]);
  for (std::uint64_t rounds = 0; rounds != 2;)
    compat::request(to.self, master, nr_slaves_atom_v)
        .receive([&](std::uint64_t n) { rounds = n; },
                 [](const caf::error& x) { FAIL(describe(x)); });
  auto reason = error_of(std::move(first));
  CHECK(code_of(reason) == errc::deadline_exceeded);
  devices.go();
  compat::anon_send(master, check_deadline_atom_v);
  CHECK(describe(error_of(std::move(second))) == describe(reason));
  CHECK(batches_tracked(to, slave) == 0);
  caf::anon_send_exit(slave, caf::exit_reason::user_shutdown);
  CHECK(ended->get());
}
