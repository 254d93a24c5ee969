#include "bench/collective/contestants.hpp"
#include "bench/collective/message_types.hpp"
#include "bench/collective/payload.hpp"

#include "syncnorm/sync_master.hpp"
#include "syncnorm/sync_relay.hpp"

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

namespace syncnorm::bench {

namespace {

using master_type = sync_master_actor<float_array, float_array>;
using relays_type = sync_relays<float_array, float_array>;
using pipe = slave_pipe<float_array, float_array>;
using done_slot = detail::reply_slot;

/// A participant: identifier 0 leads the rounds, the others are slaves.
class participant : public caf::event_based_actor {
public:
  participant(caf::actor_config& config, master_type master, int identifier,
              float_array payload, float_array expected, done_slot registered)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        identifier_{identifier},
        payload_{std::move(payload)},
        expected_{std::move(expected)},
        registered_{detail::writer_of<bool>(std::move(registered))} {}

  caf::behavior make_behavior() override {
    if (identifier_ == 0)
      registered_->put(true);
    else
      register_slave(this, master_, identifier_)
          .then([this](const slave_ticket& ticket) {
            pipe_.emplace(master_, ticket);
            registered_->put(true);
          });
    return {
        [this](run_atom, std::int64_t rounds, done_slot& done) {
          left_ = rounds;
          good_ = true;
          done_ = detail::writer_of<bool>(std::move(done));
          next();
        },
    };
  }

private:
  void next() {
    if (left_-- == 0)
      return done_->put(good_);
    auto go_on = [this](const float_array& reply) {
      good_ &= reply.data() == expected_.data() || reply == expected_;
      next();
    };
    auto stop = [this](const caf::error&) { done_->put(false); };
    if (identifier_ == 0)
      run_master(this, master_, payload_).then(go_on, stop);
    else
      pipe_->run_slave(this, payload_).then(go_on, stop);
  }

  master_type master_;
  int identifier_;
  float_array payload_;
  float_array expected_;
  std::shared_ptr<future_writer<bool>> registered_;
  std::optional<pipe> pipe_;
  std::int64_t left_ = 0;
  bool good_ = true;
  std::shared_ptr<future_writer<bool>> done_;
};

/// The same without the library: plain messages, and errors are not caught.
class raw_participant : public caf::event_based_actor {
public:
  raw_participant(caf::actor_config& config, caf::actor master, int position,
                  float_array payload)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        position_{position},
        payload_{std::move(payload)} {}

  caf::behavior make_behavior() override {
    return {
        [this](run_atom, std::int64_t rounds, done_slot& done) {
          left_ = rounds;
          good_ = true;
          done_ = detail::writer_of<bool>(std::move(done));
          next();
        },
        [this](scatter_atom, const float_array& reply) {
          good_ &= reply.data() == payload_.data();
          next();
        },
    };
  }

private:
  void next() {
    if (left_-- == 0)
      done_->put(good_);
    else
      detail::send(this, master_, gather_atom_v, position_, payload_);
  }

  caf::actor master_;
  int position_;
  float_array payload_;
  std::int64_t left_ = 0;
  bool good_ = true;
  std::shared_ptr<future_writer<bool>> done_;
};

class raw_master : public caf::event_based_actor {
public:
  raw_master(caf::actor_config& config, int participants)
      : caf::event_based_actor{config},
        payloads_(participants),
        senders_(participants) {}

  caf::behavior make_behavior() override {
    return {
        [this](gather_atom, int position, float_array& payload) {
          payloads_[position] = std::move(payload);
          senders_[position] =
              caf::actor_cast<caf::actor>(this->current_sender());
          if (++arrived_ == payloads_.size())
            scatter_all();
        },
    };
  }

  /// Participants hold their master: each would keep the other alive.
  void on_exit() override {
    senders_.clear();
  }

private:
  void scatter_all() {
    arrived_ = 0;
    auto reply = payloads_[0];
    for (auto& to : senders_)
      detail::send(this, to, scatter_atom_v, reply);
  }

  std::vector<float_array> payloads_;
  std::vector<caf::actor> senders_;
  std::size_t arrived_ = 0;
};

/// Starts the rounds in all participants and waits for the last of them.
bool run_all(const std::vector<caf::actor>& participants, std::int64_t rounds) {
  std::vector<std::shared_ptr<future_result<bool>>> done;
  for (const auto& x : participants) {
    done.push_back(std::make_shared<future_result<bool>>());
    detail::anon_send(x, run_atom_v, rounds,
                      detail::make_reply_slot(done.back()));
  }
  auto good = true;
  for (auto& x : done) {
    auto result = x->get();
    good &= result && *result;
  }
  return good;
}

void stop_all(const std::vector<caf::actor>& actors) {
  for (const auto& x : actors)
    caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
}

/// The participants in the rounds of one of the library's masters.
class library_rounds : public contestant {
public:
  /// @param relays null: all participants register with the master.
  library_rounds(caf::actor_system& system, master_type master,
                 std::unique_ptr<relays_type> relays)
      : system_{system},
        master_{std::move(master)},
        relays_{std::move(relays)} {}

  ~library_rounds() override {
    stop_all(participants_);
    caf::anon_send_exit(master_, caf::exit_reason::user_shutdown);
  }

  /// Spawns the next participant and waits until it has registered.
  void add(const float_array& payload, const float_array& expected) {
    auto identifier = static_cast<int>(participants_.size());
    auto registered = std::make_shared<future_result<bool>>();
    participants_.push_back(system_.spawn<participant>(
        relays_ ? relays_->at(identifier) : master_, identifier, payload,
        expected, detail::make_reply_slot(registered)));
    std::ignore = registered->get();
  }

  bool run(std::int64_t rounds) override {
    return run_all(participants_, rounds);
  }

private:
  caf::actor_system& system_;
  master_type master_;
  std::unique_ptr<relays_type> relays_;
  std::vector<caf::actor> participants_;
};

class raw_caf : public contestant {
public:
  raw_caf(caf::actor_system& system, int participants, int channels)
      : master_{system.spawn<raw_master>(participants)} {
    auto payload = make_payload(channels);
    for (int i = 0; i < participants; ++i)
      participants_.push_back(
          system.spawn<raw_participant>(master_, i, payload));
  }

  ~raw_caf() override {
    stop_all(participants_);
    stop_all({master_});
  }

  bool run(std::int64_t rounds) override {
    return run_all(participants_, rounds);
  }

private:
  caf::actor master_;
  std::vector<caf::actor> participants_;
};

} // namespace

contestant_ptr make_event_driven(caf::actor_system& system, int participants,
                                 int channels) {
  auto result = std::make_unique<library_rounds>(
      system,
      spawn_sync_master<float_array, float_array>(system, {.layer = "bench"},
                                                  scatter),
      nullptr);
  auto payload = make_payload(channels);
  for (int i = 0; i < participants; ++i)
    result->add(payload, payload);
  return result;
}

contestant_ptr make_reduction(caf::actor_system& system, int participants,
                              int channels, int fan_in) {
  sync_options options{.layer = "bench", .fan_in = fan_in};
  auto master = spawn_sync_master<float_array, float_array>(system, options,
                                                            sum_of_payloads());
  auto result = std::make_unique<library_rounds>(
      system, master,
      std::make_unique<relays_type>(system, master, options, participants,
                                    add));
  float_array expected{std::vector<float>(make_payload(channels).size(),
                                          static_cast<float>(participants))};
  for (int i = 0; i < participants; ++i)
    result->add(make_payload(channels), expected);
  return result;
}

contestant_ptr make_raw_caf(caf::actor_system& system, int participants,
                            int channels) {
  return std::make_unique<raw_caf>(system, participants, channels);
}

} // namespace syncnorm::bench
