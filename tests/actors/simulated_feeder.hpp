#pragma once

#include "syncnorm/batch_norm_stage.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/below.hpp"
#include "tests/actors/outcome.hpp"
#include "tests/actors/system.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

// Actors that ask a layer's slave actors for passes, several at a time, and do
// something wrong now and then.

namespace syncnorm::test {

/// A pass that all copies are asked for, in this order.
struct simulated_pass {
  bool is_backward = false;
  std::size_t batch = 0;
};

/// One copy's answer.
struct simulated_answer {
  bool is_asked = false;
  outcome<tensor> got{};
  std::uint64_t pass_id = 0;
};

/// One copy's part of a batch.
struct simulated_part {
  tensor x, dy;
  simulated_answer forward{}, backward{};
};

struct simulated_feed {
  std::mt19937 random;
  std::vector<simulated_pass> passes{};
  /// Indexed by copy, then batch.
  std::vector<std::vector<simulated_part>> parts{};
  std::vector<batch_norm_slave_actor> slaves{};
  /// How many passes may be asked for at a time.
  int window = 1;
  /// How many misdeeds may still happen.
  int misdeeds = 0;
  /// The answers to occasional requests for metrics.
  std::vector<std::shared_ptr<outcome<sync_metrics>>> questions{};
};

/// The feeder of one copy.
class simulated_feeder final : public caf::event_based_actor {
public:
  simulated_feeder(caf::actor_config& config, simulated_feed& feed,
                   std::size_t copy)
      : caf::event_based_actor{config},
        feed_{feed},
        parts_{feed.parts[copy]},
        slave_{feed.slaves[copy]} {}

  caf::behavior make_behavior() override {
    return {[this](go_atom) { go_on(); }};
  }

private:
  enum class misdeed { none, gives_up, kills, sends_another, stops };

  void go_on() {
    while (!has_stopped_ && open_ < feed_.window
           && next_ < feed_.passes.size()) {
      auto pass = feed_.passes[next_];
      auto& part = parts_[pass.batch];
      if (pass.is_backward && !part.forward.got.value)
        return;
      ++next_;
      ask(pass, part, choose());
    }
  }

  misdeed choose() {
    if (feed_.misdeeds == 0 || below(feed_.random, 8) != 0)
      return misdeed::none;
    --feed_.misdeeds;
    return static_cast<misdeed>(1 + below(feed_.random, 4));
  }

  void ask(const simulated_pass& pass, simulated_part& part, misdeed what) {
    if (below(feed_.random, 4) == 0)
      ask_for_metrics();
    if (what == misdeed::gives_up || what == misdeed::stops)
      detail::anon_send(slave_, give_up_atom_v, std::string{"of no use"});
    if (what == misdeed::kills)
      caf::anon_send_exit(slave_, caf::exit_reason::kill);
    has_stopped_ = what == misdeed::stops;
    auto is_other = what == misdeed::sends_another;
    if (has_stopped_)
      return;
    if (pass.is_backward)
      ask_backward(part, part.forward.pass_id + (is_other ? 1000 : 0));
    else
      ask_forward(part, is_other ? too_wide() : part.x);
  }

  /// A tensor with one channel too many.
  tensor too_wide() const {
    std::array<std::int64_t, 3> sizes{2, parts_[0].x.layout.shape.channels + 1,
                                      1};
    return tensor{make_layout(parts_[0].x.layout.type, sizes)};
  }

  void ask_forward(simulated_part& part, const tensor& x) {
    begin(part.forward);
    detail::request(this, slave_, forward_atom_v, share(x))
        .then(
            [this, &part](const shared_tensor& y, std::uint64_t pass_id) {
              part.forward.pass_id = pass_id;
              end(part.forward, y);
            },
            [this, &part](const caf::error& why) { fail(part.forward, why); });
  }

  void ask_backward(simulated_part& part, std::uint64_t pass_id) {
    begin(part.backward);
    detail::request(this, slave_, backward_atom_v, pass_id, share(part.dy))
        .then(
            [this, &part](const shared_tensor& dx) { end(part.backward, dx); },
            [this, &part](const caf::error& why) { fail(part.backward, why); });
  }

  void ask_for_metrics() {
    auto got = std::make_shared<outcome<sync_metrics>>();
    feed_.questions.push_back(got);
    detail::request(this, slave_, get_metrics_atom_v)
        .then([got](const sync_metrics& x) { (*got)(x); },
              [got](const caf::error& why) { (*got)(why); });
  }

  void begin(simulated_answer& x) {
    ++open_;
    x.is_asked = true;
  }

  void end(simulated_answer& x, const shared_tensor& value) {
    x.got(fetch(value));
    --open_;
    go_on();
  }

  void fail(simulated_answer& x, const caf::error& why) {
    x.got(why);
    --open_;
    has_stopped_ = true;
  }

  simulated_feed& feed_;
  std::vector<simulated_part>& parts_;
  batch_norm_slave_actor slave_;
  std::size_t next_ = 0;
  int open_ = 0;
  bool has_stopped_ = false;
};

} // namespace syncnorm::test
