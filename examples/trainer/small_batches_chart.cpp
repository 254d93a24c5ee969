// Draws what small_batches.sh has measured: reads rows of norm, samples per
// replica, seed and accuracy in percent; prints mean and standard deviation
// over the seeds, and writes them as an SVG chart.
//
//   syncnorm-small-batches-chart small_batches.csv small_batches.svg

#include "trainer/failure.hpp"
#include "trainer/output/atomic_file.hpp"
#include "trainer/output/chart.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace syncnorm::train;

using measurements =
    std::map<std::string, std::map<double, std::vector<double>>>;

measurements read(const std::string& file) {
  std::istringstream in{read_whole(file)};
  std::string line;
  std::getline(in, line);
  measurements result;
  while (std::getline(in, line)) {
    std::istringstream fields{line};
    std::string norm;
    double samples = 0;
    double seed = 0;
    double accuracy = 0;
    char comma = 0;
    if (!std::getline(fields, norm, ',')
        || !(fields >> samples >> comma >> seed >> comma >> accuracy))
      throw failure{
          fmt::format("{}: expected norm,samples,seed,accuracy, found "
                      "\"{}\"",
                      file, line)};
    result[norm][samples].push_back(accuracy);
  }
  return result;
}

/// Mean and sample standard deviation of the accuracies at `samples`.
chart_point summarize(double samples, const std::vector<double>& accuracies) {
  double sum = 0;
  for (auto x : accuracies)
    sum += x;
  auto n = static_cast<double>(accuracies.size());
  chart_point point{samples, sum / n};
  double squares = 0;
  for (auto x : accuracies)
    squares += (x - point.y) * (x - point.y);
  if (n > 1)
    point.spread = std::sqrt(squares / (n - 1));
  return point;
}

void draw(const std::string& from, const std::string& to) {
  chart_panel panel{"Four replicas, handwritten digits",
                    "samples per replica",
                    "held-out accuracy, percent",
                    {},
                    true};
  for (const auto& [norm, by_samples] : read(from)) {
    chart_series series{norm + " batch norm", {}};
    for (const auto& [samples, accuracies] : by_samples) {
      series.points.push_back(summarize(samples, accuracies));
      const auto& point = series.points.back();
      fmt::print("{:5}  {:2} samples  {:6.2f} % +- {:.2f} ({} seeds)\n", norm,
                 samples, point.y, point.spread, accuracies.size());
    }
    panel.series.push_back(series);
  }
  write_atomically(to, render_svg({panel}));
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} MEASUREMENTS.csv CHART.svg\n", argv[0]);
    return 1;
  }
  try {
    draw(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& x) {
    fmt::print(stderr, "{}: {}\n", argv[0], x.what());
    return 1;
  }
}
