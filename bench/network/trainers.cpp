#include "bench/network/trainers.hpp"

#ifdef SYNCNORM_TRAIN

#include "tests/trainer/child_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncnorm::bench {

namespace {

using train::child_process;
using words = std::vector<std::string>;

words operator+(words a, const words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

double median(std::vector<double> values) {
  if (values.empty())
    throw std::runtime_error{"bench/network: the trainer has printed no rate"};
  auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// The number before " samples/s".
double rate_of(const std::string& line) {
  auto end = line.find(" samples/s");
  if (end == std::string::npos)
    return 0;
  auto begin = line.rfind(' ', end - 1);
  return std::atof(line.c_str() + begin);
}

/// A run, and where it leaves its model.
class trainer_run {
public:
  /// @param batch samples per step, over all replicas.
  explicit trainer_run(std::int64_t batch)
      : settings_{"--model=cnn", fmt::format("--batch={}", batch),
                  // About the same number of steps.
                  fmt::format("--epochs={}", 20 * batch / 256)} {
    auto pattern =
        (std::filesystem::temp_directory_path() / "syncnorm-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error{"bench/network: no temporary folder"};
    folder_ = pattern;
  }

  trainer_run(const trainer_run&) = delete;
  trainer_run& operator=(const trainer_run&) = delete;

  ~trainer_run() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  /// Returns the median of all epochs but the first, in samples per second.
  double in_one_process() {
    child_process only{options() + words{"--devices=cpu*4"}};
    return rate(only);
  }

  double in_two_processes() {
    const words half{"--devices=cpu*2"};
    child_process first{options() + half
                        + words{"--serve=127.0.0.1:0", "--workers=1"}};
    const std::string mark = "serving at ";
    auto line = first.line_that_begins(mark);
    auto where = line.substr(mark.size(), line.find(": w") - mark.size());
    child_process second{words{SYNCNORM_TRAIN} + settings_ + half
                         + words{"--join=" + where}};
    auto result = rate(first);
    finish(second);
    return result;
  }

  [[nodiscard]] std::string checkpoint() const {
    std::ifstream file{folder_ / "checkpoint.pt", std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
  }

private:
  [[nodiscard]] words options() const {
    return words{SYNCNORM_TRAIN} + settings_
           + words{"--checkpoint=" + folder_.string(), "--every=9999"};
  }

  static void finish(child_process& process) {
    if (process.finish() != 0)
      throw std::runtime_error{"bench/network: the trainer has failed: "
                               + process.output()};
  }

  static double rate(child_process& process) {
    finish(process);
    std::vector<double> rates;
    auto text = process.output();
    for (std::size_t begin = 0; begin < text.size();) {
      auto end = std::min(text.find('\n', begin), text.size());
      if (auto x = rate_of(text.substr(begin, end - begin)); x > 0)
        rates.push_back(x);
      begin = end + 1;
    }
    if (!rates.empty())
      rates.erase(rates.begin());
    return median(std::move(rates));
  }

  words settings_;
  std::filesystem::path folder_;
};

void compare_trainers(const options& given, report& out, std::int64_t batch) {
  std::vector<double> ones;
  std::vector<double> twos;
  for (int i = 0; i < trainer_rounds(given); ++i) {
    trainer_run one{batch};
    trainer_run two{batch};
    ones.push_back(one.in_one_process());
    twos.push_back(two.in_two_processes());
    if (one.checkpoint().empty() || one.checkpoint() != two.checkpoint())
      throw std::runtime_error{"bench/network: two processes have trained "
                               "something else than one"};
  }
  auto ours = median(std::move(twos));
  auto theirs = median(std::move(ones));
  out.add(at_least(0.8,
                   fmt::format("trainer, {} samples a step, 4 replicas in two "
                               "processes / in one",
                               batch),
                   ours, theirs, "samples/s", ours / theirs));
}

} // namespace

void compare_trainers(const options& given, report& out) {
  for (std::int64_t batch : {256, 512, 1024})
    compare_trainers(given, out, batch);
}

} // namespace syncnorm::bench

#else

#include <cstdio>

namespace syncnorm::bench {

void compare_trainers(const options&, report&) {
  std::puts("bench/network: this build has no trainer, whose rows are left "
            "out");
}

} // namespace syncnorm::bench

#endif
