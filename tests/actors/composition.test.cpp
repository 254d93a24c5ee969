#include "tests/actors/stages.hpp"

#include <utility>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Somebody else's actor: feeds a slave and keeps the answers.
class feeder : public caf::event_based_actor {
public:
  feeder(caf::actor_config& config, std::vector<shared_tensor> xs,
         future_outputs done)
      : caf::event_based_actor{config},
        xs_{std::move(xs)},
        done_{std::move(done)} {}

protected:
  void keep(const shared_tensor& y) {
    ys_.push_back(y);
    if (ys_.size() == xs_.size())
      std::ignore = done_->put(std::exchange(ys_, {}));
  }

  void fail(const caf::error& reason) {
    std::ignore = done_->put(reason);
  }

  std::vector<shared_tensor> xs_;

private:
  outputs ys_;
  future_outputs done_;
};

/// By requests, all at once.
class requesting : public feeder {
public:
  requesting(caf::actor_config& config, std::vector<shared_tensor> xs,
             future_outputs done, batch_norm_slave_actor slave)
      : feeder{config, std::move(xs), std::move(done)},
        slave_{std::move(slave)} {}

  // begin: request
  caf::behavior make_behavior() override {
    for (const auto& x : xs_)
      compat::request(this, slave_, forward_atom_v, x)
          .then([this](const shared_tensor& y, std::uint64_t) { keep(y); },
                [this](const caf::error& reason) { fail(reason); });
    return {[](caf::unit_t) {}};
  }
  // end: request

private:
  batch_norm_slave_actor slave_;
};

/// By plain messages: the answers come as messages, too.
class plain : public feeder {
public:
  plain(caf::actor_config& config, std::vector<shared_tensor> xs,
        future_outputs done, batch_norm_slave_actor slave)
      : feeder{config, std::move(xs), std::move(done)},
        slave_{std::move(slave)} {}

  caf::behavior make_behavior() override {
    for (const auto& x : xs_)
      compat::send(this, slave_, forward_atom_v, x);
    return {[this](const shared_tensor& y, std::uint64_t) { keep(y); },
            [this](const caf::error& reason) { fail(reason); }};
  }

private:
  batch_norm_slave_actor slave_;
};

/// Leaves each request to a slave that only it knows: the answer goes to
/// whoever asked.
class front : public caf::event_based_actor {
public:
  front(caf::actor_config& config, batch_norm_slave_actor slave)
      : caf::event_based_actor{config},
        slave_{std::move(slave)} {}

  // begin: delegate
  caf::behavior make_behavior() override {
    return {[this](forward_atom, const shared_tensor& x) {
      return compat::delegate(this, slave_, forward_atom_v, x);
    }};
  }
  // end: delegate

private:
  batch_norm_slave_actor slave_;
};

class through_front : public feeder {
public:
  through_front(caf::actor_config& config, std::vector<shared_tensor> xs,
                future_outputs done, caf::actor front)
      : feeder{config, std::move(xs), std::move(done)},
        front_{std::move(front)} {}

  caf::behavior make_behavior() override {
    for (const auto& x : xs_)
      compat::request(this, front_, forward_atom_v, x)
          .then([this](const shared_tensor& y, std::uint64_t) { keep(y); },
                [this](const caf::error& reason) { fail(reason); });
    return {[](caf::unit_t) {}};
  }

private:
  caf::actor front_;
};

/// Runs an actor a copy, made by `spawn(r, future)`, and compares.
template <class Spawn>
void check_all(const fed_stages& net, Spawn spawn) {
  std::vector<future_outputs> futures;
  for (std::size_t r = 0; r < fed_stages::copies; ++r) {
    futures.push_back(std::make_shared<future_result<outputs>>());
    spawn(r, futures.back());
  }
  for (std::size_t r = 0; r < fed_stages::copies; ++r) {
    auto ys = futures[r]->get();
    REQUIRE(static_cast<bool>(ys));
    net.check(r, *ys);
  }
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "an actor takes a slave actor by requests and "
                                 "goes on when the answers come") {
  fed_stages net{system};
  check_all(net, [&](std::size_t r, const future_outputs& done) {
    system.spawn<requesting>(net.messages(r), done, net.stages[r]->slave());
  });
}

TEST_CASE_FIXTURE(layer_fixture, "an actor delegates to a slave actor, which "
                                 "answers the one who asked") {
  fed_stages net{system};
  check_all(net, [&](std::size_t r, const future_outputs& done) {
    auto to = system.spawn<front>(net.stages[r]->slave());
    system.spawn<through_front>(net.messages(r), done, to);
  });
}

TEST_CASE_FIXTURE(layer_fixture, "an actor takes a slave actor by plain "
                                 "messages, and the answers are messages") {
  fed_stages net{system};
  check_all(net, [&](std::size_t r, const future_outputs& done) {
    system.spawn<plain>(net.messages(r), done, net.stages[r]->slave());
  });
}

TEST_CASE_FIXTURE(layer_fixture, "a thread takes a slave actor through a "
                                 "scoped actor") {
  fed_stages net{system};
  caf::scoped_actor self{system};
  using pending_type = decltype(compat::request(
      self, net.stages[0]->slave(), forward_atom_v, shared_tensor{}));
  std::vector<std::vector<pending_type>> pending(fed_stages::copies);
  for (std::size_t r = 0; r < fed_stages::copies; ++r)
    for (auto& x : net.messages(r))
      pending[r].push_back(compat::request(self, net.stages[r]->slave(),
                                           forward_atom_v, std::move(x)));
  for (std::size_t r = 0; r < fed_stages::copies; ++r) {
    outputs ys;
    for (auto& each : pending[r])
      std::move(each).receive(
          [&](const shared_tensor& y, std::uint64_t) { ys.push_back(y); },
          [&](const caf::error& reason) { FAIL(describe(reason)); });
    net.check(r, ys);
  }
}
