#include "bench/network/contestants.hpp"

#include "bench/collective/payload.hpp"

#include "syncnorm/detail/brought_here.hpp"
#include "syncnorm/sync_master.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace syncnorm::bench {

namespace {

using done_slot = detail::reply_slot;

/// Base of leaders: does something `times` times on request.
class leader : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  caf::behavior make_behavior() override {
    return {[this](run_atom, std::int64_t times, done_slot& done) {
      left_ = times;
      done_ = detail::writer_of<bool>(std::move(done));
      next();
    }};
  }

protected:
  virtual void once() = 0;

  void next() {
    if (left_-- == 0)
      return done_->put(true);
    once();
  }

  void fail(const caf::error& reason) {
    left_ = 0;
    done_->put(reason);
  }

private:
  std::int64_t left_ = 0;
  std::shared_ptr<future_writer<bool>> done_;
};

caf::error wrong_answer() {
  return make_error(errc::malformed_message, "a wrong answer");
}

class round_leader : public leader {
public:
  round_leader(caf::actor_config& config, network_master master,
               float_array payload, float_array expected)
      : leader{config},
        master_{std::move(master)},
        payload_{std::move(payload)},
        expected_{std::move(expected)} {}

protected:
  void once() override {
    run_master(this, master_, payload_)
        .then(
            [this](const float_array& sum) {
              if (sum == expected_)
                next();
              else
                fail(wrong_answer());
            },
            [this](const caf::error& reason) { fail(reason); });
  }

private:
  network_master master_;
  float_array payload_;
  float_array expected_;
};

class requester : public leader {
public:
  requester(caf::actor_config& config, std::vector<caf::actor> peers,
            float_array payload)
      : leader{config},
        peers_{std::move(peers)},
        payload_{std::move(payload)} {}

protected:
  void once() override {
    open_ = peers_.size();
    for (const auto& x : peers_)
      detail::request(this, x, echo_atom_v, payload_)
          .then(
              [this](const float_array& answer) {
                if (answer != payload_)
                  fail(wrong_answer());
                else if (--open_ == 0)
                  next();
              },
              [this](const caf::error& reason) { fail(reason); });
  }

private:
  std::vector<caf::actor> peers_;
  float_array payload_;
  std::size_t open_ = 0;
};

class chunk_sender : public leader {
public:
  chunk_sender(caf::actor_config& config, caf::actor peer,
               std::vector<float_array> chunks, std::size_t window)
      : leader{config},
        peer_{std::move(peer)},
        chunks_{std::move(chunks)},
        window_{window} {}

protected:
  void once() override {
    sent_ = 0;
    answered_ = 0;
    while (sent_ < std::min(window_, chunks_.size()))
      send_one();
  }

private:
  void send_one() {
    auto i = sent_++;
    detail::request(this, peer_, chunk_atom_v, std::uint64_t{i}, chunks_[i])
        .then(
            [this, i](std::uint64_t size) {
              if (size != chunks_[i].size())
                return fail(wrong_answer());
              if (sent_ < chunks_.size())
                send_one();
              if (++answered_ == chunks_.size())
                next();
            },
            [this](const caf::error& reason) { fail(reason); });
  }

  caf::actor peer_;
  std::vector<float_array> chunks_;
  std::size_t window_;
  std::size_t sent_ = 0;
  std::size_t answered_ = 0;
};

/// Controls a leader from the measuring thread.
class led : public network_contestant {
public:
  explicit led(caf::actor leader, caf::actor master = {})
      : leader_{std::move(leader)},
        master_{std::move(master)} {}

  ~led() override {
    caf::anon_send_exit(leader_, caf::exit_reason::user_shutdown);
    if (master_)
      caf::anon_send_exit(master_, caf::exit_reason::user_shutdown);
  }

  void run(std::int64_t times) override {
    start(times);
    finish();
  }

  void start(std::int64_t times) {
    detail::anon_send(leader_, run_atom_v, times,
                      detail::make_reply_slot(done_));
  }

  void finish() {
    if (auto result = done_->get(); !result)
      throw std::runtime_error{"bench/network: " + describe(result.error())};
  }

private:
  caf::actor leader_;
  caf::actor master_;
  std::shared_ptr<future_result<bool>> done_ =
      std::make_shared<future_result<bool>>();
};

class led_together : public network_contestant {
public:
  explicit led_together(std::vector<std::unique_ptr<led>> all)
      : all_{std::move(all)} {}

  void run(std::int64_t times) override {
    for (auto& x : all_)
      x->start(times);
    for (auto& x : all_)
      x->finish();
  }

private:
  std::vector<std::unique_ptr<led>> all_;
};

float_array filled(std::size_t elements, std::size_t value) {
  return float_array{std::vector<float>(elements, static_cast<float>(value))};
}

std::unique_ptr<led> lead_rounds(caf::actor_system& system,
                                 const std::vector<caf::actor>& peers,
                                 std::size_t elements) {
  auto master = spawn_sync_master<float_array, float_array>(
      system, {.layer = "bench", .deadline = std::chrono::hours{1}},
      sum_of_payloads());
  auto untyped = caf::actor_cast<caf::actor>(master);
  caf::scoped_actor self{system};
  for (std::size_t i = 0; i < peers.size(); ++i)
    detail::send(self, peers[i], join_atom_v, untyped,
                 static_cast<std::int64_t>(i + 1), std::uint64_t{elements});
  auto count = [&] {
    std::uint64_t result = 0;
    detail::request(self, master, nr_slaves_atom_v)
        .receive([&](std::uint64_t n) { result = n; }, [](caf::error&) {});
    return result;
  };
  while (count() < peers.size())
    self->receive(caf::after(std::chrono::milliseconds{5}) >> [] {});
  return std::make_unique<led>(
      system.spawn<round_leader>(master, filled(elements, 1),
                                 filled(elements, peers.size() + 1)),
      untyped);
}

} // namespace

network_contestant_ptr make_rounds(caf::actor_system& system,
                                   const std::vector<caf::actor>& peers,
                                   std::size_t elements) {
  return lead_rounds(system, peers, elements);
}

network_contestant_ptr make_layers(caf::actor_system& system,
                                   const std::vector<caf::actor>& peers,
                                   std::size_t elements, std::size_t layers) {
  std::vector<std::unique_ptr<led>> all;
  while (all.size() < layers)
    all.push_back(lead_rounds(system, peers, elements));
  return std::make_unique<led_together>(std::move(all));
}

network_contestant_ptr make_requests(caf::actor_system& system,
                                     const std::vector<caf::actor>& peers,
                                     std::size_t elements) {
  return std::make_unique<led>(
      system.spawn<requester>(peers, filled(elements, 1)));
}

std::vector<float> bulk_values(std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i)
    values[i] = static_cast<float>(i % 1000);
  return values;
}

caf::actor make_receiver(caf::actor_system& system, const caf::actor& peer,
                         bool here) {
  caf::actor result;
  caf::scoped_actor self{system};
  detail::request(self, peer, receiver_atom_v, here)
      .receive([&](const caf::actor& x) { result = x; },
               [](const caf::error&) {});
  if (!result)
    throw std::runtime_error{"bench/network: no receiver"};
  return result;
}

network_contestant_ptr make_chunks(caf::actor_system& system,
                                   const caf::actor& receiver,
                                   std::span<const float> values,
                                   const chunking& cut) {
  std::vector<float_array> chunks;
  for (; !values.empty(); values = values.subspan(chunks.back().size())) {
    auto part = values.first(std::min(cut.elements, values.size()));
    chunks.emplace_back(std::vector<float>(part.begin(), part.end()));
  }
  return std::make_unique<led>(
      caf::actor{system.spawn<detail::brought_here<chunk_sender>>(
          cut.here, receiver, std::move(chunks), cut.window)});
}

double total_of(caf::actor_system& system, const caf::actor& receiver) {
  double total = -1;
  caf::scoped_actor self{system};
  detail::request(self, receiver, total_atom_v)
      .receive([&](double x) { total = x; }, [](const caf::error&) {});
  return total;
}

} // namespace syncnorm::bench
