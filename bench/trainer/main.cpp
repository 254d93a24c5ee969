// Samples per second of the trainer's replicas against a plain libtorch loop of
// the same model on one thread, and where a step's time goes. 64 samples a
// replica, the bundled digits; all candidates in one process, in turn.

#include "bench/support.hpp"
#include "bench/trainer/plain.hpp"

#include "trainer/input/dataset.hpp"
#include "trainer/plan/devices.hpp"
#include "trainer/run/replica.hpp"
#include "trainer/run/replica_group.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace syncnorm;
using namespace syncnorm::train;

constexpr std::size_t samples_per_replica = 64;
constexpr int steps_per_run = 10;

struct bench_config : caf::actor_system_config {
  bench_config() {
    detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_train>(
        *this);
  }
};

/// Replicas that train, and what their steps were made of.
class contestant {
public:
  contestant(caf::actor_system& system, norm_kind norm, std::size_t replicas,
             const dataset_ptr& data)
      : samples_{data->training.size()},
        batch_{replicas * samples_per_replica} {
    settings options;
    options.norm = norm;
    options.batch = batch_;
    auto devices = parse_devices(fmt::format("cpu*{}", replicas));
    group_ = std::make_unique<replica_group>(
        system, spawn_replicas(system, options, devices, data));
    group_->assemble();
  }

  void run() {
    for (int i = 0; i < steps_per_run; ++i) {
      if (position_ + batch_ > samples_)
        position_ = 0;
      // A rate of zero keeps the arithmetic the same for as long as it runs.
      auto reports =
          group_->step({0, ++step_, position_, position_ + batch_, 0.0});
      position_ += batch_;
      for (const auto& report : reports) {
        seconds_ += report.seconds;
        averaging_ += report.averaging;
        waiting_ += report.waiting;
      }
    }
  }

  [[nodiscard]] std::size_t batch() const noexcept {
    return batch_;
  }

  [[nodiscard]] double averaging_share() const noexcept {
    return averaging_ / seconds_;
  }

  [[nodiscard]] double waiting_share() const noexcept {
    return waiting_ / seconds_;
  }

private:
  std::size_t samples_;
  std::size_t batch_;
  std::unique_ptr<replica_group> group_;
  std::uint64_t position_ = 0;
  std::uint64_t step_ = 0;
  double seconds_ = 0;
  double averaging_ = 0;
  double waiting_ = 0;
};

struct measured {
  std::unique_ptr<contestant> subject;
  bench::timing time;

  [[nodiscard]] double rate() const {
    return static_cast<double>(subject->batch()) * steps_per_run / time.median;
  }
};

/// A share of a step's time, with a goal that it stays below if there are
/// enough cores for one to be meaningful.
bench::row share(std::string name, double part, double whole, bool has_cores) {
  bench::row row;
  row.name = std::move(name);
  row.ours = part;
  row.theirs = whole;
  row.unit = "ms";
  row.ratio = part / whole;
  row.goal = has_cores ? "<= 0.05" : "reported";
  row.met = !has_cores || row.ratio <= 0.05;
  return row;
}

int run(int argc, char** argv) {
  using namespace bench;
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_train>();
  auto options = parse_options(argc, argv);
  bench_config configuration;
  caf::actor_system system{configuration};
  auto data = load_dataset(SYNCNORM_DIGITS);
  const std::vector<std::size_t> replicas{1, 2, 4};
  plain_loop plain{data};
  std::vector<measured> sync;
  std::vector<measured> local;
  for (auto n : replicas) {
    sync.push_back(
        {std::make_unique<contestant>(system, norm_kind::sync, n, data), {}});
    local.push_back(
        {std::make_unique<contestant>(system, norm_kind::local, n, data), {}});
  }
  std::vector<candidate> candidates{{"plain libtorch", [&] {
                                       for (int i = 0; i < steps_per_run; ++i)
                                         plain.step(samples_per_replica);
                                     }}};
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    candidates.push_back({fmt::format("sync/R={}", replicas[i]),
                          [&sync, i] { sync[i].subject->run(); }});
    candidates.push_back({fmt::format("local/R={}", replicas[i]),
                          [&local, i] { local[i].subject->run(); }});
  }
  auto times = time_in_turn(candidates, options.rounds);
  bench::report out{"trainer: cnn, 64 samples of 8 x 8 a replica", options};
  for (std::size_t i = 0; i < candidates.size(); ++i)
    out.add(candidates[i].name, times[i], 0);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    sync[i].time = times[1 + 2 * i];
    local[i].time = times[2 + 2 * i];
  }
  auto plain_rate = samples_per_replica * steps_per_run / times[0].median;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    auto n = static_cast<double>(replicas[i]);
    auto has_cores = std::thread::hardware_concurrency() >= replicas[i];
    auto name = [&](const char* what) {
      return fmt::format("{}, R={}", what, replicas[i]);
    };
    auto rate = sync[i].rate();
    out.add(reported(name("against R plain libtorch loops"), rate,
                     n * plain_rate, "samples/s", rate / (n * plain_rate)));
    if (i == 0)
      continue;
    auto linear = n * sync[0].rate();
    out.add(has_cores ? at_least(0.9, name("against R times one replica"), rate,
                                 linear, "samples/s", rate / linear)
                      : reported(name("against R times one replica"), rate,
                                 linear, "samples/s", rate / linear));
    auto step = 1e3 * sync[i].time.median / steps_per_run;
    auto extra = step - 1e3 * local[i].time.median / steps_per_run;
    out.add(share(name("more than with local norm"), extra, step, has_cores));
    auto subject = sync[i].subject.get();
    out.add(share(name("adding up gradients"),
                  subject->averaging_share() * step, step, false));
    out.add(
        share(name("waiting"), subject->waiting_share() * step, step, false));
  }
  out.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& x) {
    fmt::print(stderr, "{}\n", x.what());
    return 1;
  }
}
