#pragma once

// What all benchmarks share: timing of several candidates in turn, a
// description of the machine, and the files that scripts/bench.sh reads.

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace syncnorm::bench {

/// Something to be timed. All candidates of a comparison run in one process,
/// in turn.
struct candidate {
  std::string name;
  std::function<void()> run;
  /// Run before each timed turn, if set: wakes up threads that sleep.
  std::function<void()> prepare = nullptr;
};

/// Seconds of one candidate over all rounds.
struct timing {
  double median = 0;
  double minimum = 0;
  /// (third quartile - first quartile) / median
  double spread = 0;
  /// Of each round, in order.
  std::vector<double> rounds = {};
};

/// Runs each candidate once to warm up and then `rounds` times. Each round has
/// a newly shuffled order, the same in every process, so that no candidate
/// always finds the caches as left by the same other one.
/// @param pause  before each turn: what the previous turn has left awake, such
///               as threads that look for work, goes to sleep.
[[nodiscard]] std::vector<timing>
time_in_turn(const std::vector<candidate>& candidates, int rounds,
             std::chrono::milliseconds pause = {});

/// The median of a's time divided by b's in the same round: what slows the
/// machine down for a while slows both.
[[nodiscard]] double median_ratio(const timing& a, const timing& b);

/// One comparison: ours against theirs.
struct row {
  std::string name;
  double ours = 0;
  double theirs = 0;
  std::string unit;
  /// How ours compares, in the terms of `goal`.
  double ratio = 0;
  /// For example ">= 0.85", or "reported" if there is no goal.
  std::string goal;
  bool met = true;
};

/// A row whose ratio should be `goal` or more.
[[nodiscard]] row at_least(double goal, std::string name, double ours,
                           double theirs, std::string unit, double ratio);

/// A row that is only reported.
[[nodiscard]] row reported(std::string name, double ours, double theirs,
                           std::string unit, double ratio);

/// Name and caches of this machine, and the compiler; no date.
[[nodiscard]] nlohmann::json machine();

/// Size in bytes of the last-level cache as the system reports it, or 0.
[[nodiscard]] std::int64_t last_level_cache();

/// The command line of every benchmark: `--summary=FILE --benchmark_out=FILE
/// --filter=TEXT --rounds=N`. TEXT is the name of a part, or a piece of what is
/// timed; see each benchmark. N is 1 to a million.
struct options {
  std::string summary;
  std::string benchmark_out;
  std::string filter;

  /// Whether a part of that name is to run.
  [[nodiscard]] bool wants(const std::string& part) const {
    return filter.empty() || filter == part;
  }

  int rounds = 15;
};

/// @param rounds  the default if the command line gives no number.
/// @throws std::invalid_argument for an unknown argument.
[[nodiscard]] options parse_options(int argc, char** argv, int rounds = 15);

/// @throws std::invalid_argument if there is a filter that is none of `parts`.
void require_part(const options& given,
                  std::initializer_list<std::string_view> parts);

/// The return value of `main`: that of `run`, or 1 after printing why it
/// failed.
int run_main(int argc, char** argv, int (*run)(int, char**));

/// The results of one program: printed as they come, and written at the end.
class report {
public:
  report(std::string title, options given);

  /// A timed candidate, for the file in the format of Google Benchmark.
  void add(std::string_view name, const timing& measured, std::int64_t bytes);

  /// A comparison, for the table and the summary.
  void add(const row& one);

  /// Whether there is no comparison yet.
  [[nodiscard]] bool empty() const noexcept {
    return rows_.empty();
  }

  /// Writes the files that were asked for. Returns the number of goals that
  /// were not met.
  /// @throws std::runtime_error if there is no comparison: the filter fits
  /// none.
  int finish() const;

private:
  options options_;
  nlohmann::json benchmarks_ = nlohmann::json::array();
  std::vector<row> rows_;
};

} // namespace syncnorm::bench
