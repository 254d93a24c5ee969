// Samples per second of the trainer's replicas against a plain libtorch loop of
// the same model on one thread, and where a step's time goes. 64 samples per
// replica, the bundled digits; all candidates in one process, in turn. Before
// the timing, the loss of the first step is compared with plain libtorch's: on
// the whole batch for synchronized norm, on each part for local norm.
// `--filter` has no parts to choose from.

#include "bench/support.hpp"
#include "bench/trainer/plain.hpp"

#include "trainer/input/dataset.hpp"
#include "trainer/plan/devices.hpp"
#include "trainer/plan/epoch_order.hpp"
#include "trainer/run/replica.hpp"
#include "trainer/run/replica_group.hpp"
#include "trainer/run/this_machine.hpp"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
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
    detail::sleep_when_idle(*this);
  }
};

/// Replicas that train, and how their steps' time is spent.
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
    for (int i = 0; i < steps_per_run; ++i)
      for (const auto& report : step()) {
        seconds_ += report.seconds;
        averaging_ += report.averaging;
        waiting_ += report.waiting;
      }
  }

  /// Throws unless the loss of the first step is that of plain libtorch, which
  /// takes `at_a_time` samples at a time.
  void check(const dataset_ptr& data, std::size_t at_a_time) {
    epoch_order order{samples_, settings{}.seed, 0};
    double theirs = 0;
    for (std::size_t begin = 0; begin < batch_; begin += at_a_time)
      theirs += bench::plain_loss(data, order.range(begin, begin + at_a_time))
                * static_cast<double>(at_a_time) / static_cast<double>(batch_);
    auto ours = step().front().loss;
    if (!(std::abs(ours - theirs) <= 1e-4 * theirs))
      throw std::runtime_error{
          fmt::format("bench/trainer: {} samples, {} at a time: the loss is "
                      "{}, libtorch's {}",
                      batch_, at_a_time, ours, theirs)};
  }

  [[nodiscard]] double averaging_share() const noexcept {
    return averaging_ / seconds_;
  }

  [[nodiscard]] double waiting_share() const noexcept {
    return waiting_ / seconds_;
  }

private:
  std::vector<step_report> step() {
    if (position_ + batch_ > samples_)
      position_ = 0;
    // A learning rate of zero keeps the arithmetic the same during the whole
    // run.
    group_->begin_step({0, ++step_, position_, position_ + batch_, 0.0});
    position_ += batch_;
    return group_->end_step();
  }

  std::size_t samples_;
  std::size_t batch_;
  std::unique_ptr<replica_group> group_;
  std::uint64_t position_ = 0;
  std::uint64_t step_ = 0;
  double seconds_ = 0;
  double averaging_ = 0;
  double waiting_ = 0;
};

/// `n` replicas with synchronized and with local norm, and `n` plain loops in
/// parallel.
struct rivals {
  std::size_t replicas;
  contestant sync;
  contestant local;
  bench::plain_team apart;

  rivals(caf::actor_system& system, std::size_t n, const dataset_ptr& data)
      : replicas{n},
        sync{system, norm_kind::sync, n, data},
        local{system, norm_kind::local, n, data},
        apart{data, n} {
    sync.check(data, n * samples_per_replica);
    local.check(data, samples_per_replica);
  }

  [[nodiscard]] std::vector<bench::candidate> candidates() {
    auto name = [this](const char* what) {
      return fmt::format("{}/R={}", what, replicas);
    };
    return {{name("plain"),
             [this] { apart.run(steps_per_run, samples_per_replica); }},
            {name("sync"), [this] { sync.run(); }},
            {name("local"), [this] { local.run(); }}};
  }
};

/// Median milliseconds of one step.
struct step_times {
  double plain = 0;
  double sync = 0;
  double local = 0;

  explicit step_times(std::span<const bench::timing> three)
      : plain{in_ms(three[0])},
        sync{in_ms(three[1])},
        local{in_ms(three[2])} {}

  static double in_ms(const bench::timing& x) {
    return 1e3 * x.median / steps_per_run;
  }
};

/// Samples per second of `replicas` replicas that take `milliseconds` per step.
double rate(std::size_t replicas, double milliseconds) {
  return 1e3 * static_cast<double>(replicas * samples_per_replica)
         / milliseconds;
}

/// A share of a step's time, with an upper limit as its goal if there are
/// enough cores for one to be meaningful.
bench::row share(std::string name, double part, double whole, bool has_goal) {
  bench::row row;
  row.name = std::move(name);
  row.ours = part;
  row.theirs = whole;
  row.unit = "ms";
  row.ratio = part / whole;
  row.goal = has_goal ? "<= 0.05" : "reported";
  row.met = !has_goal || row.ratio <= 0.05;
  return row;
}

/// A rate against another, with the goal 0.9 if it has one.
bench::row against(std::string name, double ours, double theirs,
                   bool has_goal) {
  if (has_goal)
    return bench::at_least(0.9, std::move(name), ours, theirs, "samples/s",
                           ours / theirs);
  return bench::reported(std::move(name), ours, theirs, "samples/s",
                         ours / theirs);
}

/// Compares the times of several replicas or loops with `one`, those of one.
void add_rows(bench::report& out, const rivals& who, const step_times& times,
              const step_times& one) {
  auto n = who.replicas;
  auto has_cores = usable_cores().size() >= n;
  auto name = [n](const char* what) {
    return fmt::format("{}, R={}", what, n);
  };
  auto ours = rate(n, times.sync);
  auto plain = rate(n, times.plain);
  out.add(
      against(name("against R plain loops side by side"), ours, plain, false));
  if (n == 1)
    return;
  auto linear = static_cast<double>(n);
  out.add(against(name("the machine: R plain loops against R times one"), plain,
                  linear * rate(1, one.plain), false));
  out.add(against(name("against R times one replica"), ours,
                  linear * rate(1, one.sync), has_cores));
  out.add(share(name("more than with local norm"), times.sync - times.local,
                times.sync, has_cores));
  out.add(share(name("adding up gradients"),
                who.sync.averaging_share() * times.sync, times.sync, false));
  out.add(share(name("waiting"), who.sync.waiting_share() * times.sync,
                times.sync, false));
}

int run(int argc, char** argv) {
  using namespace bench;
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_train>();
  auto options = parse_options(argc, argv);
  require_part(options, {});
  bench_config configuration;
  caf::actor_system system{configuration};
  auto data = load_dataset(SYNCNORM_DIGITS);
  std::vector<std::unique_ptr<rivals>> all;
  std::vector<candidate> candidates;
  for (std::size_t n : {1, 2, 4}) {
    all.push_back(std::make_unique<rivals>(system, n, data));
    for (auto& x : all.back()->candidates())
      candidates.push_back(std::move(x));
  }
  auto times = time_in_turn(candidates, options.rounds);
  bench::report out{"trainer: cnn, 64 samples of 8 x 8 a replica", options};
  for (std::size_t i = 0; i < candidates.size(); ++i)
    out.add(candidates[i].name, times[i], 0);
  std::span three{times};
  step_times one{three.first(3)};
  for (std::size_t i = 0; i < all.size(); ++i)
    add_rows(out, *all[i], step_times{three.subspan(3 * i, 3)}, one);
  out.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  return bench::run_main(argc, argv, run);
}
