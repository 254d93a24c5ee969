#pragma once

#include "tests/actors/system.hpp"

#include <memory>
#include <stdexcept>
#include <utility>

namespace syncnorm::test {

/// What a participant does wrong in a round.
enum class fault { none, dies, throws, skips, twice, late };

inline constexpr int fault_count = 6;

/// Short, because every third round waits for it. If it also hits a participant
/// without a fault, that one still gets one outcome.
inline constexpr auto fault_deadline = std::chrono::milliseconds{2};

/// What a participant got in a round.
struct outcome_report {
  int outcomes = 0;
  bool value = false;
  bool failed = false;
};

using report_ptr = std::shared_ptr<future_result<outcome_report>>;

/// A participant of the randomized fault test: it plays its part in a round,
/// with a fault, and reports once all its messages have been answered.
class fault_participant : public caf::event_based_actor {
public:
  using master_type = sync_master_actor<double, double>;

  fault_participant(caf::actor_config& config, master_type master,
                    std::int64_t identifier)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        identifier_{identifier} {}

  caf::behavior make_behavior() override {
    return {
        [this](enlist_atom, detail::reply_slot& slot) {
          auto writer = detail::writer_of<bool>(std::move(slot));
          register_slave(this, master_, identifier_)
              .then(
                  [this, writer](const slave_ticket& t) {
                    tag_ = t.first;
                    writer->put(true);
                  },
                  [writer](const caf::error&) { writer->put(false); });
        },
        [this](play_atom, int what, detail::reply_slot& slot) {
          report_ = {};
          writer_ = detail::writer_of<outcome_report>(std::move(slot));
          play(static_cast<fault>(what));
        },
        [this](late_atom) { send_message(); },
    };
  }

private:
  void play(fault what) {
    switch (what) {
    case fault::none:
      return send_message();
    case fault::twice:
      send_message();
      return send_message();
    case fault::late:
      // Long after the deadline of the round.
      return detail::delayed_send(this, caf::actor{this},
                                  std::chrono::milliseconds{30}, late_atom_v);
    case fault::skips:
      return writer_->put(report_);
    case fault::dies:
      writer_->put(report_);
      return quit(caf::exit_reason::kill);
    case fault::throws:
      writer_->put(report_);
      throw std::runtime_error{"a fault of the test's"};
    }
  }

  void send_message() {
    ++expected_;
    auto got = [this](bool value) {
      ++report_.outcomes;
      report_.value |= value;
      report_.failed |= !value;
      if (--expected_ == 0)
        writer_->put(report_);
    };
    auto value = [got](double) { got(true); };
    auto failed = [got](const caf::error&) { got(false); };
    if (identifier_ == 0)
      run_master(this, master_, 1.0).then(value, failed);
    else
      detail::request(this, master_, run_slave_atom_v, tag_, 1.0)
          .then(value, failed);
  }

  master_type master_;
  std::int64_t identifier_;
  round_tag tag_;
  int expected_ = 0;
  outcome_report report_;
  std::shared_ptr<future_writer<outcome_report>> writer_;
};

} // namespace syncnorm::test
