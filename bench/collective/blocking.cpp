#include "bench/collective/contestants.hpp"
#include "bench/collective/payload.hpp"
#include "bench/collective/queue_design.hpp"
#include "bench/collective/threads.hpp"

#include "syncnorm/sync_master.hpp"

namespace syncnorm::bench {

namespace {

using pipe = slave_pipe<float_array, float_array>;

class blocking : public contestant {
public:
  blocking(caf::actor_system& system, int participants, int channels)
      : payload_{make_payload(channels)},
        master_{system, {.layer = "bench"}, scatter},
        pipes_{register_all(participants - 1)},
        slaves_{participants - 1,
                [this](auto i, auto n) { return rounds_as_slave(i, n); }} {}

  bool run(std::int64_t rounds) override {
    slaves_.start(rounds);
    auto good = true;
    for (std::int64_t k = 0; k < rounds; ++k) {
      auto reply = master_.run_master(payload_);
      good &= reply && reply->data() == payload_.data();
    }
    return slaves_.join() && good;
  }

private:
  std::vector<pipe> register_all(int slaves) {
    std::vector<pipe> pipes;
    for (int i = 1; i <= slaves; ++i)
      pipes.push_back(std::move(*master_.register_slave(i)));
    return pipes;
  }

  bool rounds_as_slave(std::int64_t i, std::int64_t rounds) {
    auto good = true;
    for (std::int64_t k = 0; k < rounds; ++k) {
      auto reply = pipes_[i - 1].run_slave(payload_);
      good &= reply && reply->data() == payload_.data();
    }
    return good;
  }

  float_array payload_;
  sync_master<float_array, float_array> master_;
  std::vector<pipe> pipes_;
  worker_threads slaves_;
};

class queue_design : public contestant {
public:
  queue_design(int participants, int channels)
      : payload_{make_payload(channels)},
        master_{static_cast<std::size_t>(participants) - 1, scatter},
        slaves_{participants - 1,
                [this](auto i, auto n) { return rounds_as_slave(i, n); }} {}

  bool run(std::int64_t rounds) override {
    slaves_.start(rounds);
    auto good = true;
    for (std::int64_t k = 0; k < rounds; ++k)
      good &= master_.run_master(payload_).data() == payload_.data();
    return slaves_.join() && good;
  }

private:
  bool rounds_as_slave(std::int64_t i, std::int64_t rounds) {
    auto good = true;
    for (std::int64_t k = 0; k < rounds; ++k)
      good &= master_.run_slave(i, payload_).data() == payload_.data();
    return good;
  }

  float_array payload_;
  queue_master<float_array> master_;
  worker_threads slaves_;
};

} // namespace

contestant_ptr make_blocking(caf::actor_system& system, int participants,
                             int channels) {
  return std::make_unique<blocking>(system, participants, channels);
}

contestant_ptr make_queue_design(int participants, int channels) {
  return std::make_unique<queue_design>(participants, channels);
}

} // namespace syncnorm::bench
