#include "bench/collective/contestants.hpp"
#include "bench/collective/message_types.hpp"
#include "bench/collective/payload.hpp"

#include "syncnorm/sync_master.hpp"
#include "syncnorm/sync_relay.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

namespace syncnorm::bench {

namespace {

using master_type = sync_master_actor<float_array, float_array>;
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

/// The same without the library: plain messages, no error is caught.
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

class event_driven : public contestant {
public:
  event_driven(caf::actor_system& system, int participants, int channels)
      : master_{spawn_sync_master<float_array, float_array>(
          system, {.layer = "bench"}, scatter)} {
    auto payload = make_payload(channels);
    for (int i = 0; i < participants; ++i) {
      auto registered = std::make_shared<future_result<bool>>();
      participants_.push_back(system.spawn<participant>(
          master_, i, payload, payload, detail::make_reply_slot(registered)));
      std::ignore = registered->get();
    }
  }

  ~event_driven() override {
    stop_all(participants_);
    caf::anon_send_exit(master_, caf::exit_reason::user_shutdown);
  }

  bool run(std::int64_t rounds) override {
    return run_all(participants_, rounds);
  }

private:
  master_type master_;
  std::vector<caf::actor> participants_;
};

class reduction : public contestant {
public:
  reduction(caf::actor_system& system, int participants, int channels,
            int fan_in)
      : options_{.layer = "bench", .fan_in = fan_in},
        master_{spawn_sync_master<float_array, float_array>(system, options_,
                                                            sum_of_payloads())},
        relays_{system, master_, options_, participants, add} {
    float_array expected{std::vector<float>(make_payload(channels).size(),
                                            static_cast<float>(participants))};
    for (int i = 0; i < participants; ++i) {
      auto registered = std::make_shared<future_result<bool>>();
      participants_.push_back(system.spawn<participant>(
          relays_.at(i), i, make_payload(channels), expected,
          detail::make_reply_slot(registered)));
      std::ignore = registered->get();
    }
  }

  ~reduction() override {
    stop_all(participants_);
    caf::anon_send_exit(master_, caf::exit_reason::user_shutdown);
  }

  bool run(std::int64_t rounds) override {
    return run_all(participants_, rounds);
  }

private:
  sync_options options_;
  master_type master_;
  sync_relays<float_array, float_array> relays_;
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
  return std::make_unique<event_driven>(system, participants, channels);
}

contestant_ptr make_reduction(caf::actor_system& system, int participants,
                              int channels, int fan_in) {
  return std::make_unique<reduction>(system, participants, channels, fan_in);
}

contestant_ptr make_raw_caf(caf::actor_system& system, int participants,
                            int channels) {
  return std::make_unique<raw_caf>(system, participants, channels);
}

} // namespace syncnorm::bench
