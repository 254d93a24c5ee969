// What a pipeline of slave actors costs: records through R slaves against a
// plain loop that calls the same kernels in one thread, and the actor path
// alone, with next to nothing to calculate, against plain CAF actors that only
// answer. All contestants run in one process, in turn. Before the timing, their
// results for the last of some batches are compared: those of the slaves
// together with the loop's for all records, those of the others with the loop's
// for their own part, and plain actors' answers with what they were sent.
//
// "A core": R slaves have R of CAF's workers, so R cores, for everything: their
// own work, the master's, and that of the actor that sends batches and takes
// results. Batches are scattered. First each slave gets as much as the loop, 64
// KiB a batch and so on; then all slaves together get as much, one part each.
//
// Slaves get batches in two ways: one batch a message, with CAF's usual
// workers; and several batches together, with workers that poll.
//
// Two bounds are measured beside them: the plain loop in R threads, each with
// batches of its own, which is what the machine allows R cores, with one result
// at a time and with as many as slaves have in flight; and the same scattering
// by plain actors that call the kernels only for their part, which is what CAF
// allows any actors that need no rounds.
//
// `--filter="64 KiB"` runs only the batches of that size, `--filter=way` only
// the actor path.

#include "contestants.hpp"

#include "bench/collective/message_types.hpp"
#include "bench/support.hpp"

#include "syncnorm/detail/spin.hpp"

#include <fmt/format.h>

#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace syncnorm;
using namespace syncnorm::bench;

/// How often the workers poll for actors that take several batches together:
/// for a millisecond or so.
constexpr std::size_t polls = 20'000;

/// Longer than the time in which an idle CAF worker looks for work every 50
/// microseconds, before it does so every 10 milliseconds.
constexpr std::chrono::milliseconds until_idle{100};

struct bench_config : caf::actor_system_config {
  explicit bench_config(std::size_t workers) {
    detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>(
        *this);
    set(detail::caf_line == 0 ? "scheduler.max-threads"
                              : "caf.scheduler.max-threads",
        workers);
  }
};

/// Actor systems with `workers` workers, one for each manner.
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

// -- measurement --------------------------------------------------------------

constexpr std::array<std::size_t, 3> slave_counts{1, 2, 4};

/// A plain loop's results for each of `parts` parts of `xs`, one part after the
/// other.
std::vector<float> loop_results(const batches& xs, std::size_t parts) {
  std::vector<float> result;
  for (std::size_t r = 0; r < parts; ++r) {
    batches own;
    for (const auto& x : xs)
      own.push_back(part_of(x, r, parts));
    auto loop = make_loop(own);
    loop->run(different_batches);
    std::ranges::copy(loop->last(), std::back_inserter(result));
  }
  return result;
}

/// Slaves compute the statistics in another way than the loop: the results may
/// differ slightly.
void check(contestant& x, const std::vector<float>& want,
           const std::string& who) {
  x.run(different_batches);
  auto got = x.last();
  auto good = got.size() == want.size();
  for (std::size_t i = 0; good && i < got.size(); ++i)
    good = std::abs(got[i] - want[i]) <= 1e-5F * (1 + std::abs(want[i]));
  if (!good)
    throw std::runtime_error{"bench/pipeline: " + who
                             + " makes something else than it should"};
}

/// A number of slaves, and the actor systems that they run on.
struct crew {
  std::size_t slaves;
  std::unique_ptr<systems> on = std::make_unique<systems>(slaves);
};

using crews = std::vector<crew>;

/// One of the candidates beside the plain loop.
struct entry {
  std::string name;
  /// Cores that it uses.
  std::size_t cores;
  /// Records in a batch.
  std::int64_t records;
  std::unique_ptr<contestant> who;
  /// Slave actors have a goal; their bounds have none.
  bool has_goal = false;
};

/// Adds the slaves of `by`, who get each batch of `xs` together, in both
/// manners; and the same without rounds.
void add_pipelines(std::vector<entry>& to, const batches& xs, const crew& by,
                   std::int64_t kibibytes, const std::string& label) {
  auto records = xs[0].view().shape().samples;
  auto want = loop_results(xs, 1);
  auto want_of_parts = loop_results(xs, by.slaves);
  auto parts = static_cast<std::int64_t>(by.slaves);
  for (const auto& how :
       {manner::one_by_one(),
        manner::grouped(kibibytes * 1024 / parts, by.slaves)}) {
    auto& system = how.polls ? by.on->of_together : by.on->of_one_by_one;
    auto name = fmt::format("R={}, {}, {}", by.slaves, label, how.name);
    to.push_back({"pipeline " + name, by.slaves, records,
                  make_slaves(system, xs, by.slaves, how), true});
    check(*to.back().who, want, to.back().name);
    to.push_back({"without rounds " + name, by.slaves, records,
                  make_kernel_actors(system, xs, by.slaves, how)});
    check(*to.back().who, want_of_parts, to.back().name);
  }
}

/// All that is timed beside the loop. `inputs` has the batches of each crew.
std::vector<entry> make_entries(const crews& all,
                                const std::vector<batches>& inputs,
                                std::int64_t kibibytes) {
  auto records = inputs[0][0].view().shape().samples;
  std::vector<entry> result;
  for (std::size_t i = 0; i < all.size(); ++i)
    add_pipelines(result, inputs[i], all[i],
                  kibibytes * static_cast<std::int64_t>(all[i].slaves),
                  fmt::format("{} KiB a slave", kibibytes));
  for (std::size_t i = 1; i < all.size(); ++i)
    add_pipelines(result, inputs[0], all[i], kibibytes,
                  fmt::format("{} KiB for all", kibibytes));
  auto want_of_one = loop_results(inputs[0], 1);
  for (const auto& x : all) {
    std::vector<float> want;
    for (std::size_t r = 0; r < x.slaves; ++r)
      std::ranges::copy(want_of_one, std::back_inserter(want));
    for (auto kept : {std::size_t{1},
                      manner::grouped(kibibytes * 1024, x.slaves).results()}) {
      result.push_back(
          {fmt::format("{} loops in threads, {} KiB each, {} results kept",
                       x.slaves, kibibytes, kept),
           x.slaves, records * static_cast<std::int64_t>(x.slaves),
           make_loops(x.slaves, records, features, kept)});
      check(*result.back().who, want, result.back().name);
    }
  }
  return result;
}

void add_row(report& out, const entry& x, double per_core, double loop) {
  auto name = x.name + ", a core / plain loop";
  auto ratio = per_core / loop;
  // With fewer cores than slaves, each slave cannot be as fast.
  auto enough = static_cast<std::size_t>(detail::usable_cores()) >= x.cores;
  out.add(x.has_goal && enough
              ? at_least(0.9, name, per_core, loop, "M records/s", ratio)
              : reported(name, per_core, loop, "M records/s", ratio));
}

/// The loop gets batches of `kibibytes`. So does each slave; and then all
/// slaves together do.
void compare_throughput(const crews& all, const options& given, report& out,
                        std::int64_t kibibytes) {
  auto records = kibibytes * 1024 / (features * 4);
  // A gibibyte a core; an eighth of it before each turn, untimed, since CAF's
  // sleeping workers take up to 10 ms to find work.
  auto count = std::max<std::int64_t>(different_batches, 1048576 / kibibytes);
  std::vector<batches> inputs;
  for (const auto& x : all)
    inputs.push_back(
        make_batches(records * static_cast<std::int64_t>(x.slaves), features));
  auto loop = make_loop(inputs[0]);
  // Memory that is freed during the comparison is overwritten, so that nobody
  // finds another contestant's result in memory it allocates.
  mallopt(M_PERTURB, 1);
  auto others = make_entries(all, inputs, kibibytes);
  mallopt(M_PERTURB, 0);
  std::vector<candidate> candidates{
      {fmt::format("pipeline/{} KiB/plain loop", kibibytes),
       [&] { loop->run(count); }, [&] { loop->run(count / 8); }}};
  // As many batches as give each core the same number of records.
  auto batches_for = [&](const entry& x) {
    return count * records * static_cast<std::int64_t>(x.cores) / x.records;
  };
  for (auto& x : others)
    candidates.push_back({x.name, [&] { x.who->run(batches_for(x)); },
                          [&] { x.who->run(batches_for(x) / 8); }});
  auto times = time_in_turn(candidates, given.rounds, until_idle);
  auto bytes = count * kibibytes * 1024;
  auto rate = [&](const timing& t) {
    return static_cast<double>(count * records) / t.median / 1e6;
  };
  out.add(candidates[0].name, times[0], bytes);
  for (std::size_t i = 0; i < others.size(); ++i) {
    out.add(others[i].name, times[i + 1],
            bytes * static_cast<std::int64_t>(others[i].cores));
    add_row(out, others[i], rate(times[i + 1]), rate(times[0]));
  }
}

/// One feature and one record a slave: only the path of the messages.
void compare_actor_path(const crew& by, caf::actor_system& system,
                        const options& given, report& out, const manner& how) {
  constexpr std::int64_t count = 20'000;
  auto r = by.slaves;
  auto xs = make_batches(static_cast<std::int64_t>(r), 1);
  auto ours = make_slaves(system, xs, r, how);
  auto theirs = make_plain_actors(system, xs, r, how);
  check(*ours, loop_results(xs, 1), "a pipeline");
  const auto* sent = static_cast<const float*>(xs.back().view().data());
  check(*theirs, {sent, sent + xs.back().view().size()}, "a plain actor");
  auto as_candidate = [](contestant& x) {
    return candidate{"", [&x] { x.run(count); }, [&x] { x.run(count / 8); }};
  };
  auto times = time_in_turn({as_candidate(*ours), as_candidate(*theirs)},
                            given.rounds, until_idle);
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
  require_part(given, {"64 KiB", "256 KiB", "1024 KiB", "4096 KiB", "way"});
  crews all;
  for (auto r : slave_counts)
    all.push_back({r});
  report out{"A pipeline of slave actors, online standardization of 64 float32 "
             "features",
             given};
  for (std::int64_t kibibytes : {64, 256, 1024, 4096})
    if (given.wants(fmt::format("{} KiB", kibibytes)))
      compare_throughput(all, given, out, kibibytes);
  for (const auto& x : all) {
    if (!given.wants("way"))
      break;
    compare_actor_path(x, x.on->of_one_by_one, given, out,
                       manner::one_by_one());
    compare_actor_path(x, x.on->of_together, given, out,
                       manner::grouped(8192, x.slaves));
  }
  out.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, run);
}
