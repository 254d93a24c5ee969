#include "bench/support.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace syncnorm::bench {

namespace {

using clock = std::chrono::steady_clock;

double seconds_of(const candidate& one) {
  auto start = clock::now();
  one.run();
  return std::chrono::duration<double>(clock::now() - start).count();
}

timing summarize(std::vector<double> rounds) {
  auto seconds = rounds;
  std::ranges::sort(seconds);
  auto at = [&](double share) {
    return seconds[std::size_t(share * double(seconds.size() - 1) + 0.5)];
  };
  return {at(0.5), seconds.front(), (at(0.75) - at(0.25)) / at(0.5),
          std::move(rounds)};
}

std::string cpu_name() {
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      return line.substr(line.find(':') + 2);
  return "unknown";
}

/// Sets `value` to what follows `prefix`, if `argument` starts with it.
bool take(std::string_view argument, std::string_view prefix,
          std::string& value) {
  if (!argument.starts_with(prefix))
    return false;
  value = argument.substr(prefix.size());
  return true;
}

/// More than anybody waits for, and few enough for a benchmark to multiply.
constexpr int max_rounds = 1'000'000;

int count_of(const std::string& number) {
  int result = 0;
  const auto* end = number.data() + number.size();
  auto [stop, problem] = std::from_chars(number.data(), end, result);
  if (problem != std::errc{} || stop != end || result < 1
      || result > max_rounds)
    throw std::invalid_argument{"--rounds: expected 1 to "
                                + std::to_string(max_rounds) + ", found \""
                                + number + '"'};
  return result;
}

void write(const std::string& path, const nlohmann::json& content) {
  if (path.empty())
    return;
  std::ofstream file{path};
  file << content.dump(2) << '\n';
  if (!file.flush())
    throw std::runtime_error{"cannot write " + path};
}

} // namespace

std::vector<timing> time_in_turn(const std::vector<candidate>& candidates,
                                 int rounds, std::chrono::milliseconds pause) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    order.push_back(i);
  std::vector<std::vector<double>> seconds(candidates.size());
  for (const auto& one : candidates)
    one.run();
  std::mt19937 engine{1};
  for (int round = 0; round < rounds; ++round) {
    std::ranges::shuffle(order, engine);
    for (auto i : order) {
      std::this_thread::sleep_for(pause);
      if (candidates[i].prepare)
        candidates[i].prepare();
      seconds[i].push_back(seconds_of(candidates[i]));
    }
  }
  std::vector<timing> result;
  for (auto& one : seconds)
    result.push_back(summarize(std::move(one)));
  return result;
}

double median_ratio(const timing& a, const timing& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.rounds.size(); ++i)
    ratios.push_back(a.rounds[i] / b.rounds[i]);
  return summarize(std::move(ratios)).median;
}

row at_least(double goal, std::string name, double ours, double theirs,
             std::string unit, double ratio) {
  char text[32];
  std::snprintf(text, sizeof(text), ">= %.3g", goal);
  return {std::move(name), ours, theirs,       std::move(unit),
          ratio,           text, ratio >= goal};
}

row reported(std::string name, double ours, double theirs, std::string unit,
             double ratio) {
  return {std::move(name), ours,       theirs, std::move(unit),
          ratio,           "reported", true};
}

std::int64_t last_level_cache() {
  for (auto level :
       {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (auto size = sysconf(level); size > 0)
      return size;
  return 0;
}

nlohmann::json machine() {
  return {{"cpu", cpu_name()},
          {"num_cpus", std::thread::hardware_concurrency()},
          {"l1d_bytes", sysconf(_SC_LEVEL1_DCACHE_SIZE)},
          {"l2_bytes", sysconf(_SC_LEVEL2_CACHE_SIZE)},
          {"last_level_cache_bytes", last_level_cache()},
          {"compiler", __VERSION__}};
}

options parse_options(int argc, char** argv, int rounds) {
  options result;
  result.rounds = rounds;
  for (int i = 1; i < argc; ++i) {
    std::string_view argument{argv[i]};
    std::string number;
    if (take(argument, "--rounds=", number))
      result.rounds = count_of(number);
    else if (!take(argument, "--summary=", result.summary)
             && !take(argument, "--benchmark_out=", result.benchmark_out)
             && !take(argument, "--filter=", result.filter))
      throw std::invalid_argument{"unknown argument: " + std::string{argument}};
  }
  return result;
}

void require_part(const options& given,
                  std::initializer_list<std::string_view> parts) {
  if (given.filter.empty() || std::ranges::count(parts, given.filter) > 0)
    return;
  std::string text{"--filter: there is no part \"" + given.filter
                   + "\"; there are:"};
  for (auto part : parts)
    text.append(" \"").append(part).append("\"");
  if (parts.size() == 0)
    text += " none";
  throw std::invalid_argument{text};
}

int run_main(int argc, char** argv, int (*run)(int, char**)) {
  try {
    return run(argc, argv);
  } catch (const std::exception& reason) {
    std::fprintf(stderr, "%s\n", reason.what());
    return 1;
  }
}

report::report(std::string title, options given) : options_{std::move(given)} {
  auto about = machine();
  std::printf("%s\n%s, %d CPUs, L2 %ld KiB, last-level cache %ld MiB; "
              "medians of %d rounds\n\n",
              title.c_str(), about["cpu"].get<std::string>().c_str(),
              about["num_cpus"].get<int>(), about["l2_bytes"].get<long>() >> 10,
              about["last_level_cache_bytes"].get<long>() >> 20,
              options_.rounds);
  std::printf("%-58s %10s %10s %4s %7s  %s\n", "", "ours", "theirs", "",
              "ratio", "goal");
}

void report::add(std::string_view name, const timing& measured,
                 std::int64_t bytes) {
  benchmarks_.push_back(
      {{"name", name},
       {"run_name", name},
       {"run_type", "iteration"},
       {"iterations", options_.rounds},
       {"real_time", measured.median * 1e3},
       {"cpu_time", measured.median * 1e3},
       {"time_unit", "ms"},
       {"minimum", measured.minimum * 1e3},
       {"spread", measured.spread},
       {"bytes_per_second", double(bytes) / measured.median}});
}

void report::add(const row& one) {
  std::printf("%-58s %10.3f %10.3f %4s %7.2f  %s%s\n", one.name.c_str(),
              one.ours, one.theirs, one.unit.c_str(), one.ratio,
              one.goal.c_str(), one.met ? "" : "  NOT MET");
  std::fflush(stdout);
  rows_.push_back(one);
}

int report::finish() const {
  if (empty())
    throw std::runtime_error{"there is nothing to report; --filter: \""
                             + options_.filter + '"'};
  auto summary = nlohmann::json::array();
  int missed = 0;
  int goals = 0;
  for (const auto& one : rows_) {
    summary.push_back({{"name", one.name},
                       {"ours", one.ours},
                       {"theirs", one.theirs},
                       {"unit", one.unit},
                       {"ratio", one.ratio},
                       {"goal", one.goal},
                       {"met", one.met}});
    missed += one.met ? 0 : 1;
    goals += one.goal == "reported" ? 0 : 1;
  }
  write(options_.summary, summary);
  write(options_.benchmark_out,
        {{"context", machine()}, {"benchmarks", benchmarks_}});
  std::printf("\n%d of %d goals not met\n", missed, goals);
  return missed;
}

} // namespace syncnorm::bench
