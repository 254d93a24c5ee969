// What a pipeline of slave actors costs: records through R slaves against a
// plain loop that calls the same kernels in one thread, and the actor path
// alone, with next to nothing to calculate, against plain CAF actors that only
// answer. All contestants in one process, in turn; before they are timed, what
// they make is compared.

#include "bench/collective/message_types.hpp"
#include "bench/support.hpp"

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/batch_norm_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace syncnorm;
using namespace syncnorm::bench;

constexpr std::int64_t features = 64;
/// Batches on their way at a time.
constexpr std::size_t window = 8;
constexpr std::size_t different_batches = 16;

struct bench_config : caf::actor_system_config {
  bench_config() {
    detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>(
        *this);
  }
};

using batches = std::vector<shared_tensor>;

batches make_batches(std::int64_t records, std::int64_t width) {
  std::minstd_rand random{1};
  std::uniform_real_distribution<float> values{-1, 3};
  batches result;
  for (std::size_t k = 0; k < different_batches; ++k) {
    std::array sizes{records, width};
    tensor_memory memory{make_layout(dtype::float32, sizes)};
    auto* first = static_cast<float*>(memory.view().data());
    std::generate_n(first, memory.view().size(),
                    [&] { return values(random); });
    result.push_back(memory.share());
  }
  return result;
}

/// Something that takes `count` batches, from the first on.
class contestant {
public:
  contestant() = default;
  contestant(const contestant&) = delete;
  contestant& operator=(const contestant&) = delete;
  virtual ~contestant() = default;

  /// Returns what the last one became, part after part.
  virtual std::vector<float> run(std::int64_t count) = 0;
};

// -- a plain loop -------------------------------------------------------------

/// Online standardization without actors and without messages.
class plain_loop : public contestant {
public:
  explicit plain_loop(const batches& xs)
      : xs_{xs},
        y_{xs[0].view().layout()},
        scratch_(batch_moments_workspace(xs[0].view().layout())) {}

  std::vector<float> run(std::int64_t count) override {
    auto channels = xs_[0].view().shape().channels;
    auto size = static_cast<std::size_t>(channels);
    std::vector<double> seen(2 * size), batch(2 * size), values(2 * size);
    std::vector<float> mean(size), inv_std(size);
    auto view_of = [&](std::int64_t n, std::vector<double>& x) {
      return moments_view{n,        x.data(),       x.data() + size,
                          channels, dtype::float64, {}};
    };
    auto total = view_of(0, seen);
    for (std::int64_t k = 0; k < count; ++k) {
      const auto& x = xs_[static_cast<std::size_t>(k) % xs_.size()].view();
      auto part = view_of(0, batch);
      batch_moments({}, x, part, {scratch_.data(), scratch_.size()});
      std::array<const_moments_view, 2> parts{total, part};
      merge_moments({}, parts, total);
      values = seen;
      finalize_moments({}, total, {}, values.data(), values.data() + size, {});
      std::copy_n(values.begin(), size, mean.begin());
      std::copy_n(values.begin() + channels, size, inv_std.begin());
      normalize({}, x, {mean.data(), inv_std.data()}, y_.view());
    }
    const auto* first = static_cast<const float*>(y_.view().data());
    return {first, first + y_.view().size()};
  }

private:
  const batches& xs_;
  tensor_memory y_;
  std::vector<std::byte> scratch_;
};

// -- actors -------------------------------------------------------------------

/// Takes a tensor and answers it: the least that CAF can do.
class plain_actor : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  caf::behavior make_behavior() override {
    return {[](forward_atom, const shared_tensor& x)
                -> caf::result<shared_tensor, std::uint64_t> {
      return {x, std::uint64_t{0}};
    }};
  }
};

/// Scatters batches among `workers`, a window of them at a time.
class feeder : public caf::event_based_actor {
public:
  feeder(caf::actor_config& config, const batches& xs,
         std::vector<caf::actor> workers, std::vector<shared_tensor>& last)
      : caf::event_based_actor{config},
        xs_{xs},
        workers_{std::move(workers)},
        last_{last} {}

  caf::behavior make_behavior() override {
    return {[this](run_atom, std::int64_t count, detail::reply_slot& done) {
      done_ = detail::writer_of<bool>(std::move(done));
      count_ = count;
      fed_ = 0;
      missing_ = static_cast<std::size_t>(count) * workers_.size();
      for (std::size_t i = 0; i < window; ++i)
        feed();
    }};
  }

private:
  void feed() {
    if (fed_ == count_)
      return;
    auto number = fed_++;
    const auto& x = xs_[static_cast<std::size_t>(number) % xs_.size()];
    auto samples = x.view().shape().samples;
    auto parts = static_cast<std::int64_t>(workers_.size());
    for (std::int64_t r = 0; r < parts; ++r) {
      auto first = samples * r / parts;
      ask(number, static_cast<std::size_t>(r),
          x.samples(first, samples * (r + 1) / parts - first));
    }
  }

  void ask(std::int64_t number, std::size_t r, shared_tensor part) {
    detail::request(this, workers_[r], forward_atom_v, std::move(part))
        .then(
            [this, number, r](const shared_tensor& y, std::uint64_t) {
              if (number + 1 == count_)
                last_[r] = y;
              // The last worker's answer makes room for the next batch.
              if (r + 1 == workers_.size())
                feed();
              if (--missing_ == 0)
                done_->put(true);
            },
            [this](const caf::error& reason) { done_->put(reason); });
  }

  const batches& xs_;
  std::vector<caf::actor> workers_;
  std::vector<shared_tensor>& last_;
  std::int64_t count_ = 0;
  std::int64_t fed_ = 0;
  std::size_t missing_ = 0;
  std::shared_ptr<future_writer<bool>> done_;
};

class fed_actors : public contestant {
public:
  fed_actors(caf::actor_system& system, const batches& xs,
             std::vector<caf::actor> workers)
      : last_(workers.size()),
        workers_{std::move(workers)},
        feeder_{system.spawn<feeder>(xs, workers_, std::ref(last_))} {}

  ~fed_actors() override {
    for (const auto& x : workers_)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(feeder_, caf::exit_reason::user_shutdown);
  }

  std::vector<float> run(std::int64_t count) override {
    auto done = std::make_shared<future_result<bool>>();
    detail::anon_send(feeder_, run_atom_v, count,
                      detail::make_reply_slot(done));
    auto result = done->get();
    if (!result)
      throw std::runtime_error{describe(result.error())};
    std::vector<float> y;
    for (const auto& part : last_) {
      const auto* first = static_cast<const float*>(part.view().data());
      y.insert(y.end(), first, first + part.view().size());
    }
    return y;
  }

private:
  std::vector<shared_tensor> last_;
  std::vector<caf::actor> workers_;
  caf::actor feeder_;
};

/// Online standardization by `count` slave actors.
class slaves : public contestant {
public:
  slaves(caf::actor_system& system, const batches& xs, std::size_t count) {
    for (std::size_t r = 0; r < count; ++r)
      stages_.push_back(std::make_unique<batch_norm_stage>(
          system, batch_norm_options{.name = "bench",
                                     .channels = xs[0].view().shape().channels,
                                     .affine = false,
                                     .online = true}));
    execute_replication_callbacks(stages_);
    std::vector<caf::actor> workers;
    for (auto& stage : stages_)
      workers.push_back(caf::actor_cast<caf::actor>(stage->slave()));
    fed_ = std::make_unique<fed_actors>(system, xs, std::move(workers));
  }

  std::vector<float> run(std::int64_t count) override {
    return fed_->run(count);
  }

private:
  std::vector<std::unique_ptr<batch_norm_stage>> stages_;
  std::unique_ptr<fed_actors> fed_;
};

std::unique_ptr<contestant> make_plain_actors(caf::actor_system& system,
                                              const batches& xs,
                                              std::size_t count) {
  std::vector<caf::actor> workers;
  for (std::size_t r = 0; r < count; ++r)
    workers.push_back(system.spawn<plain_actor>());
  return std::make_unique<fed_actors>(system, xs, std::move(workers));
}

// -- measurement --------------------------------------------------------------

constexpr std::array<std::size_t, 3> slave_counts{1, 2, 4};

/// The statistics of all so far, by another way than the loop's.
void check(const std::vector<float>& got, const std::vector<float>& want,
           const std::string& who) {
  auto good = got.size() == want.size();
  for (std::size_t i = 0; good && i < got.size(); ++i)
    good = std::abs(got[i] - want[i]) <= 1e-5F * (1 + std::abs(want[i]));
  if (!good)
    throw std::runtime_error{"bench/pipeline: " + who
                             + " makes something else than the plain loop"};
}

void compare_throughput(caf::actor_system& system, const options& given,
                        report& out, std::int64_t kibibytes) {
  auto records = kibibytes * 1024 / (features * 4);
  auto xs = make_batches(records, features);
  auto count = std::max<std::int64_t>(different_batches, 65536 / kibibytes);
  plain_loop loop{xs};
  std::vector<std::unique_ptr<contestant>> ours;
  for (auto r : slave_counts)
    ours.push_back(std::make_unique<slaves>(system, xs, r));
  auto want = loop.run(different_batches);
  for (auto& x : ours)
    check(x->run(different_batches), want, "a pipeline");
  std::vector<candidate> candidates{
      {"plain loop", [&] { (void) loop.run(count); }}};
  for (std::size_t i = 0; i < ours.size(); ++i)
    candidates.push_back({fmt::format("slaves R={}", slave_counts[i]),
                          [&, i] { (void) ours[i]->run(count); }});
  auto times = time_in_turn(candidates, given.rounds);
  auto rate = [&](const timing& t) {
    return static_cast<double>(count * records) / t.median / 1e6;
  };
  for (std::size_t i = 0; i < candidates.size(); ++i)
    out.add(fmt::format("pipeline/{} KiB/{}", kibibytes, candidates[i].name),
            times[i], count * kibibytes * 1024);
  for (std::size_t i = 0; i < slave_counts.size(); ++i) {
    auto r = slave_counts[i];
    auto per_core = rate(times[i + 1]) / static_cast<double>(r);
    auto name = fmt::format(
        "pipeline R={}, {} KiB a batch, a core / plain loop", r, kibibytes);
    // More slaves than cores cannot be as fast, each.
    if (std::thread::hardware_concurrency() < r)
      out.add(reported(name, per_core, rate(times[0]), "M records/s",
                       per_core / rate(times[0])));
    else
      out.add(at_least(0.9, name, per_core, rate(times[0]), "M records/s",
                       per_core / rate(times[0])));
  }
}

/// One feature and one record a slave: nothing but the way of the messages.
void compare_actor_path(caf::actor_system& system, const options& given,
                        report& out) {
  constexpr std::int64_t count = 20'000;
  for (auto r : slave_counts) {
    auto xs = make_batches(static_cast<std::int64_t>(r), 1);
    slaves ours{system, xs, r};
    auto theirs = make_plain_actors(system, xs, r);
    plain_loop loop{xs};
    check(ours.run(different_batches), loop.run(different_batches),
          "a pipeline");
    auto times = time_in_turn({{"slaves", [&] { (void) ours.run(count); }},
                               {"plain", [&] { (void) theirs->run(count); }}},
                              given.rounds);
    auto us = [&](const timing& t) { return t.median * 1e6 / count; };
    auto one =
        reported(fmt::format("pipeline R={}: a batch's way through "
                             "slave actors / plain actors",
                             r),
                 us(times[0]), us(times[1]), "us", us(times[0]) / us(times[1]));
    one.goal = "<= 2 us more";
    one.met = us(times[0]) - us(times[1]) <= 2;
    out.add(one);
  }
}

int run(int argc, char** argv) {
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>();
  auto given = parse_options(argc, argv);
  bench_config config;
  caf::actor_system system{config};
  report out{"A pipeline of slave actors, online standardization of 64 float32 "
             "features",
             given};
  for (std::int64_t kibibytes : {64, 256, 1024, 4096})
    compare_throughput(system, given, out, kibibytes);
  compare_actor_path(system, given, out);
  out.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, run);
}
