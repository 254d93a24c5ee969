// Cost of a round of the collective: ours, event-driven and blocking, against
// the least that CAF needs and against the reference's design, interleaved in
// one process. Each contestant's result is checked before and during the
// timing.
//
// `--filter=TEXT` runs only the rounds with TEXT in their names, such as
// C=256/R=4; `--filter=memory` only the memory of idle slaves. Google
// Benchmark's options are accepted, too.

#include "bench/collective/contestants.hpp"
#include "bench/collective/message_types.hpp"
#include "bench/support.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::bench;

namespace {

struct config : caf::actor_system_config {
  config() {
    detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>(
        *this);
  }
};

std::string name_of(const char* contestant, int participants, int channels) {
  return fmt::format("round/{}/C={}/R={}", contestant, channels, participants);
}

/// Times rounds of one contestant, which is made anew for each repetition.
/// @param wrong  receives the name of a contestant that made a wrong reply:
///               where a report holds it differs between Google Benchmark's
///               versions.
void time_rounds(benchmark::State& state,
                 const std::function<contestant_ptr()>& make, int participants,
                 const std::string& name, std::string& wrong) {
  auto subject = make();
  auto good = subject->run(100);
  const auto batch = std::max(10, 2000 / participants);
  while (good && state.KeepRunningBatch(batch))
    good = subject->run(batch);
  if (!good) {
    wrong = name;
    state.SkipWithError("a participant got a wrong reply");
  }
}

void add(const options& given, std::string& wrong, const char* contestant,
         int participants, int channels, std::function<contestant_ptr()> make) {
  auto name = name_of(contestant, participants, channels);
  if (name.find(given.filter) == std::string::npos)
    return;
  benchmark::RegisterBenchmark(name.c_str(), time_rounds, std::move(make),
                               participants, name, std::ref(wrong))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.05)
      ->Repetitions(given.rounds);
}

constexpr int channel_counts[] = {64, 256, 2048};
constexpr int event_driven_counts[] = {2, 4, 8, 64, 1000};
constexpr int thread_counts[] = {2, 4, 8};

void add_all(caf::actor_system& system, const options& given,
             std::string& wrong) {
  for (auto c : channel_counts) {
    for (auto r : event_driven_counts) {
      add(given, wrong, "event-driven", r, c,
          [&system, r, c] { return make_event_driven(system, r, c); });
      add(given, wrong, "raw-caf", r, c,
          [&system, r, c] { return make_raw_caf(system, r, c); });
    }
    for (auto r : thread_counts) {
      add(given, wrong, "blocking", r, c,
          [&system, r, c] { return make_blocking(system, r, c); });
      add(given, wrong, "queue-design", r, c,
          [r, c] { return make_queue_design(r, c); });
    }
  }
}

/// Prints as usual, and keeps every repetition.
class collector : public benchmark::ConsoleReporter {
public:
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const auto& run : runs)
      if (run.run_type == Run::RT_Iteration)
        times_[run.run_name.function_name].push_back(run.GetAdjustedRealTime());
    ConsoleReporter::ReportRuns(runs);
  }

  /// Median over the repetitions in microseconds per round; 0 if left out.
  [[nodiscard]] double median(const std::string& name) {
    auto& times = times_[name];
    if (times.empty())
      return 0;
    auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
  }

private:
  std::map<std::string, std::vector<double>> times_;
};

class comparison {
public:
  comparison(collector& from, report& to) : from_{from}, to_{to} {}

  /// ours / theirs should be `goal` or less; 0 means no goal.
  void at_most(double goal, const char* ours, const char* theirs, int r,
               int c) {
    auto x = from_.median(name_of(ours, r, c));
    auto y = from_.median(name_of(theirs, r, c));
    if (x == 0 || y == 0)
      return;
    auto name = fmt::format("round {} / {}, C={}, R={}", ours, theirs, c, r);
    auto ratio = x / y;
    to_.add(row{name, x, y, "us", ratio,
                goal > 0 ? fmt::format("<= {}", goal) : "reported",
                goal == 0 || ratio <= goal});
  }

private:
  collector& from_;
  report& to_;
};

void compare(collector& from, report& to) {
  comparison rows{from, to};
  for (auto c : channel_counts) {
    for (auto r : event_driven_counts)
      rows.at_most(r <= 64 ? 1.2 : 0, "event-driven", "raw-caf", r, c);
    for (auto r : thread_counts) {
      rows.at_most(r >= 4 ? 0.5 : 0, "event-driven", "queue-design", r, c);
      rows.at_most(SYNCNORM_CAF_LEGACY ? 1.5 : 1.0, "blocking", "queue-design",
                   r, c);
    }
  }
}

void report_memory(caf::actor_system& system, report& to) {
  constexpr int slaves = 10'000;
  constexpr double limit = 4096;
  auto bytes = bytes_per_idle_slave(system, slaves, slaves + 1);
  to.add(row{fmt::format("memory of an idle slave, {} of them", slaves), bytes,
             limit, "bytes", bytes / limit, "<= 1", bytes <= limit});
}

int run(int argc, char** argv) {
  // Google Benchmark first removes its own arguments from the command line.
  std::vector<char*> arguments(argv, argv + argc);
  auto interleave = std::string{"--benchmark_enable_random_interleaving=true"};
  arguments.insert(arguments.begin() + 1, interleave.data());
  auto count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>();
  config cfg;
  caf::actor_system system{cfg};
  auto given = parse_options(count, arguments.data(), 9);
  report summary{"collective", given};
  if (given.wants("memory"))
    report_memory(system, summary);
  std::string wrong;
  add_all(system, given, wrong);
  collector results;
  if (given.filter != "memory")
    benchmark::RunSpecifiedBenchmarks(&results);
  if (!wrong.empty())
    throw std::runtime_error{"bench/collective: " + wrong
                             + ": a participant got a wrong reply"};
  compare(results, summary);
  summary.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, run);
}
