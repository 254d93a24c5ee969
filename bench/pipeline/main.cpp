// What a pipeline of slave actors costs: records through R slaves against a
// plain loop that calls the same kernels in one thread, and the actor path
// alone, with next to nothing to calculate, against plain CAF actors that only
// answer. All contestants in one process, in turn; before they are timed, what
// they make is compared.
//
// "A core": R slaves have R of CAF's workers, so R cores, for everything: their
// own work, the master's, and that of the actor that sends batches and takes
// results. Batches are scattered. First each slave gets what the loop gets, 64
// KiB a batch and so on; then all slaves together get it, a part each.
//
// Slaves are asked in two ways: one batch a message, with CAF's workers as they
// are; and several batches together, with workers that poll.

#include "bench/collective/message_types.hpp"
#include "bench/support.hpp"

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/batch_norm_stage.hpp"
#include "syncnorm/detail/spin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace syncnorm;
using namespace syncnorm::bench;

constexpr std::int64_t features = 64;
constexpr std::size_t different_batches = 16;
/// For the workers of the actors that take several batches together: a
/// millisecond or so.
constexpr std::size_t polls = 20'000;

struct bench_config : caf::actor_system_config {
  explicit bench_config(std::size_t workers) {
    detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>(
        *this);
    set(detail::caf_line == 0 ? "scheduler.max-threads"
                              : "caf.scheduler.max-threads",
        workers);
  }
};

/// How actors are asked.
struct manner {
  std::string name;
  /// Batches in a message.
  std::int64_t together;
  /// Messages to each actor on their way at a time.
  std::size_t window;
  /// Whether idle workers poll.
  bool polls;

  static manner one_by_one() {
    return {"one by one", 1, 8, false};
  }

  /// As many as make 128 KiB for a slave, 16 at most.
  static manner grouped(std::int64_t bytes_a_slave) {
    return {"together", std::clamp<std::int64_t>(131072 / bytes_a_slave, 1, 16),
            4, true};
  }
};

/// Actor systems with that many workers, one for each manner.
struct systems {
  explicit systems(std::size_t workers) : usual{workers}, polling{workers} {}

  bench_config usual;
  bench_config polling;
  caf::actor_system of_one_by_one{usual};
  caf::actor_system of_together{with_polls(polling)};

  static bench_config& with_polls(bench_config& config) {
    detail::poll_when_idle(config, polls);
    return config;
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
            },
            [](forward_atom, const shared_tensors& xs)
                -> caf::result<shared_tensors, std::uint64_t> {
              return {xs, std::uint64_t{0}};
            }};
  }
};

/// Scatters batches among `workers`, a window of messages at a time.
class feeder : public caf::event_based_actor {
public:
  feeder(caf::actor_config& config, const batches& xs,
         std::vector<caf::actor> workers, manner how,
         std::vector<shared_tensor>& last)
      : caf::event_based_actor{config},
        xs_{xs},
        workers_{std::move(workers)},
        how_{std::move(how)},
        last_{last} {}

  caf::behavior make_behavior() override {
    return {[this](run_atom, std::int64_t count, detail::reply_slot& done) {
      done_ = detail::writer_of<bool>(std::move(done));
      count_ = count;
      fed_ = 0;
      missing_ = count * static_cast<std::int64_t>(workers_.size());
      for (std::size_t i = 0; i < how_.window; ++i)
        feed();
    }};
  }

private:
  void feed() {
    if (fed_ == count_)
      return;
    auto first = fed_;
    fed_ = std::min(count_, first + how_.together);
    for (std::size_t r = 0; r < workers_.size(); ++r)
      if (how_.together == 1)
        ask_one(first, r);
      else
        ask_several(first, r);
  }

  [[nodiscard]] shared_tensor part(std::int64_t number, std::size_t r) const {
    const auto& x = xs_[static_cast<std::size_t>(number) % xs_.size()];
    auto samples = x.view().shape().samples;
    auto parts = static_cast<std::int64_t>(workers_.size());
    auto mine = static_cast<std::int64_t>(r);
    auto first = samples * mine / parts;
    return x.samples(first, samples * (mine + 1) / parts - first);
  }

  void ask_one(std::int64_t number, std::size_t r) {
    detail::request(this, workers_[r], forward_atom_v, part(number, r))
        .then([this, number, r](const shared_tensor& y,
                                std::uint64_t) { take(number + 1, 1, r, y); },
              [this](const caf::error& reason) { done_->put(reason); });
  }

  void ask_several(std::int64_t first, std::size_t r) {
    shared_tensors xs;
    for (auto number = first; number < fed_; ++number)
      xs.each.push_back(part(number, r));
    detail::request(this, workers_[r], forward_atom_v, std::move(xs))
        .then(
            [this, first, r](const shared_tensors& ys, std::uint64_t) {
              auto size = static_cast<std::int64_t>(ys.each.size());
              take(first + size, size, r, ys.each.back());
            },
            [this](const caf::error& reason) { done_->put(reason); });
  }

  /// Worker `r` has answered `size` batches, the last of them before `end`.
  void take(std::int64_t end, std::int64_t size, std::size_t r,
            const shared_tensor& last) {
    if (end == count_)
      last_[r] = last;
    // The last worker's answer makes room for the next batches.
    if (r + 1 == workers_.size())
      feed();
    missing_ -= size;
    if (missing_ == 0)
      done_->put(true);
  }

  const batches& xs_;
  std::vector<caf::actor> workers_;
  manner how_;
  std::vector<shared_tensor>& last_;
  std::int64_t count_ = 0;
  std::int64_t fed_ = 0;
  std::int64_t missing_ = 0;
  std::shared_ptr<future_writer<bool>> done_;
};

class fed_actors : public contestant {
public:
  fed_actors(caf::actor_system& system, const batches& xs,
             std::vector<caf::actor> workers, const manner& how)
      : last_(workers.size()),
        workers_{std::move(workers)},
        feeder_{system.spawn<feeder>(xs, workers_, how, std::ref(last_))} {}

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
  slaves(caf::actor_system& system, const batches& xs, std::size_t count,
         const manner& how) {
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
    fed_ = std::make_unique<fed_actors>(system, xs, std::move(workers), how);
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
                                              std::size_t count,
                                              const manner& how) {
  std::vector<caf::actor> workers;
  for (std::size_t r = 0; r < count; ++r)
    workers.push_back(system.spawn<plain_actor>());
  return std::make_unique<fed_actors>(system, xs, std::move(workers), how);
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

/// A number of slaves, and what they run on.
struct crew {
  std::size_t slaves;
  std::unique_ptr<systems> on = std::make_unique<systems>(slaves);
};

using crews = std::vector<crew>;

/// A pipeline among the candidates.
struct entry {
  std::string name;
  std::size_t slaves;
  std::int64_t records;
  std::unique_ptr<contestant> who;
};

/// A batch that all slaves of `by` together get, in both manners.
void add_pipelines(std::vector<entry>& to, const batches& xs, const crew& by,
                   std::int64_t kibibytes, const std::string& label) {
  auto records = xs[0].view().shape().samples;
  auto want = plain_loop{xs}.run(different_batches);
  auto parts = static_cast<std::int64_t>(by.slaves);
  for (const auto& how :
       {manner::one_by_one(), manner::grouped(kibibytes * 1024 / parts)}) {
    auto& system = how.polls ? by.on->of_together : by.on->of_one_by_one;
    auto name =
        fmt::format("pipeline R={}, {}, {}", by.slaves, label, how.name);
    to.push_back({name, by.slaves, records,
                  std::make_unique<slaves>(system, xs, by.slaves, how)});
    check(to.back().who->run(different_batches), want, name);
  }
}

/// The loop has batches of `kibibytes`. So has each slave; and then all slaves
/// together have.
void compare_throughput(const crews& all, const options& given, report& out,
                        std::int64_t kibibytes) {
  auto records = kibibytes * 1024 / (features * 4);
  // A quarter of a gibibyte a core: over it, what CAF's sleeping workers take
  // to wake up (up to 10 ms) counts little.
  auto count = std::max<std::int64_t>(different_batches, 262144 / kibibytes);
  std::vector<batches> inputs;
  for (const auto& x : all)
    inputs.push_back(
        make_batches(records * static_cast<std::int64_t>(x.slaves), features));
  plain_loop loop{inputs[0]};
  std::vector<entry> ours;
  for (std::size_t i = 0; i < all.size(); ++i)
    add_pipelines(ours, inputs[i], all[i],
                  kibibytes * static_cast<std::int64_t>(all[i].slaves),
                  fmt::format("{} KiB a slave", kibibytes));
  for (std::size_t i = 1; i < all.size(); ++i)
    add_pipelines(ours, inputs[0], all[i], kibibytes,
                  fmt::format("{} KiB for all", kibibytes));
  std::vector<candidate> candidates{
      {fmt::format("pipeline/{} KiB/plain loop", kibibytes),
       [&] { (void) loop.run(count); }}};
  // Of as many records for each slave.
  auto batches_for = [&](const entry& x) {
    return count * records * static_cast<std::int64_t>(x.slaves) / x.records;
  };
  for (auto& x : ours)
    candidates.push_back({x.name, [&] { (void) x.who->run(batches_for(x)); }});
  auto times = time_in_turn(candidates, given.rounds);
  auto bytes = count * kibibytes * 1024;
  out.add(candidates[0].name, times[0], bytes);
  for (std::size_t i = 0; i < ours.size(); ++i)
    out.add(ours[i].name, times[i + 1],
            bytes * static_cast<std::int64_t>(ours[i].slaves));
  auto rate = [&](const timing& t) {
    return static_cast<double>(count * records) / t.median / 1e6;
  };
  for (std::size_t i = 0; i < ours.size(); ++i) {
    auto per_core = rate(times[i + 1]);
    auto name = ours[i].name + ", a core / plain loop";
    auto ratio = per_core / rate(times[0]);
    // More slaves than cores cannot be as fast, each.
    if (static_cast<std::size_t>(detail::usable_cores()) < ours[i].slaves)
      out.add(reported(name, per_core, rate(times[0]), "M records/s", ratio));
    else
      out.add(
          at_least(0.9, name, per_core, rate(times[0]), "M records/s", ratio));
  }
}

/// One feature and one record a slave: nothing but the way of the messages.
void compare_actor_path(const crew& by, caf::actor_system& system,
                        const options& given, report& out, const manner& how) {
  constexpr std::int64_t count = 20'000;
  auto r = by.slaves;
  auto xs = make_batches(static_cast<std::int64_t>(r), 1);
  slaves ours{system, xs, r, how};
  auto theirs = make_plain_actors(system, xs, r, how);
  plain_loop loop{xs};
  check(ours.run(different_batches), loop.run(different_batches), "a pipeline");
  auto times = time_in_turn({{"slaves", [&] { (void) ours.run(count); }},
                             {"plain", [&] { (void) theirs->run(count); }}},
                            given.rounds);
  auto us = [&](const timing& t) { return t.median * 1e6 / count; };
  auto one =
      reported(fmt::format("pipeline R={}, {}: a batch's way through "
                           "slave actors / plain actors",
                           r, how.name),
               us(times[0]), us(times[1]), "us", us(times[0]) / us(times[1]));
  one.goal = "<= 2 us more";
  one.met = us(times[0]) - us(times[1]) <= 2;
  out.add(one);
}

int run(int argc, char** argv) {
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>();
  auto given = parse_options(argc, argv);
  crews all;
  for (auto r : slave_counts)
    all.push_back({r});
  report out{"A pipeline of slave actors, online standardization of 64 float32 "
             "features",
             given};
  for (std::int64_t kibibytes : {64, 256, 1024, 4096})
    compare_throughput(all, given, out, kibibytes);
  for (const auto& x : all) {
    compare_actor_path(x, x.on->of_one_by_one, given, out,
                       manner::one_by_one());
    compare_actor_path(x, x.on->of_together, given, out, manner::grouped(8192));
  }
  out.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, run);
}
