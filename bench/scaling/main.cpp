// What a round costs as replicas increase: in one process, and simulated over a
// network with one node per replica; each with all replicas at the master, and
// in a tree of relays. Every participant checks every reply.
//
// With --figures=DIR before other arguments, it writes DIR/rounds.csv and
// DIR/rounds.svg. Otherwise `--filter=memory`, `rounds` or `network` runs only
// that part.

#include "bench/collective/contestants.hpp"
#include "bench/collective/message_types.hpp"
#include "bench/scaling/simulation.hpp"
#include "bench/support.hpp"

#include "trainer/output/atomic_file.hpp"
#include "trainer/output/chart.hpp"

#include "syncnorm/message_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace syncnorm;
using namespace syncnorm::bench;

constexpr int fan_in = 16;
constexpr int channels = 256;

struct config : caf::actor_system_config {
  config() {
    detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>(
        *this);
  }
};

/// The columns of the table, one row for each number of replicas; in
/// microseconds.
struct figures {
  std::vector<int> replicas{2,   4,   8,    16,   32,   64,    128,
                            256, 512, 1024, 2048, 4096, 10'000};
  std::vector<double> flat;
  std::vector<double> tree;
  std::vector<double> simulated_flat;
  std::vector<double> simulated_tree;
  std::vector<double> simulated_best;
};

// -- in one process -----------------------------------------------------------

void measure(caf::actor_system& system, const options& given, figures& result,
             report& out) {
  for (auto n : result.replicas) {
    auto flat = make_reduction(system, n, channels, n);
    auto tree = make_reduction(system, n, channels, fan_in);
    auto times = std::max(1, 20'000 / n);
    auto run = [times](const contestant_ptr& x) {
      if (!x->run(times))
        throw std::runtime_error{"bench/scaling: a replica got a wrong sum"};
    };
    auto taken = time_in_turn(
        {{"flat", [&] { run(flat); }}, {"tree", [&] { run(tree); }}},
        given.rounds);
    result.flat.push_back(taken[0].median * 1e6 / times);
    result.tree.push_back(taken[1].median * 1e6 / times);
    out.add(reported(fmt::format("round of {} replicas: tree / flat", n),
                     result.tree.back(), result.flat.back(), "us",
                     result.tree.back() / result.flat.back()));
  }
}

void measure_memory(caf::actor_system& system, report& out) {
  constexpr int slaves = 10'000;
  constexpr double limit = 4096;
  auto bytes = bytes_per_idle_slave(system, slaves, fan_in);
  auto one =
      reported(fmt::format("memory of an idle replica, {} in a tree", slaves),
               bytes, limit, "B", bytes / limit);
  one.goal = "<= 1";
  one.met = bytes <= limit;
  out.add(one);
}

// -- over a network -----------------------------------------------------------

std::int64_t best_power(const network_model& model) {
  auto f = best_fan_in(model);
  auto low = std::exp2(std::floor(std::log2(f)));
  // The result is the same for any number of replicas.
  auto better =
      estimate_round(model, 1000, low) < estimate_round(model, 1000, 2 * low);
  return static_cast<std::int64_t>(better ? low : 2 * low);
}

void simulate(figures& result, report& out) {
  network_model model;
  auto best = best_power(model);
  for (auto n : result.replicas) {
    result.simulated_flat.push_back(simulate_round(model, n, n));
    result.simulated_tree.push_back(simulate_round(model, n, fan_in));
    result.simulated_best.push_back(simulate_round(model, n, best));
  }
  for (std::int64_t f : {2, 4, 8, 16, 32, 64}) {
    auto found = simulate_round(model, 10'000, f);
    auto formula = estimate_round(model, 10'000, static_cast<double>(f));
    out.add(reported(
        fmt::format("simulated, 10000 nodes, fan-in {}: simulation / formula",
                    f),
        found, formula, "us", found / formula));
  }
  // From 100 to 10000 nodes the logarithm doubles.
  auto few = simulate_round(model, 100, best);
  auto many = simulate_round(model, 10'000, best);
  row growth = reported(
      fmt::format("simulated, fan-in {}: 10000 nodes / 100 nodes", best), many,
      few, "us", many / few);
  growth.goal = "<= 2.2";
  growth.met = growth.ratio <= 2.2;
  out.add(growth);
  std::printf("best fan-in by formula: %.2f\n", best_fan_in(model));
}

// -- figures ------------------------------------------------------------------

void write_table(const figures& x, const std::string& path) {
  std::string text = "replicas,flat_us,tree_us,simulated_flat_us,"
                     "simulated_tree16_us,simulated_tree_best_us\n";
  for (std::size_t i = 0; i < x.replicas.size(); ++i)
    text += fmt::format("{},{:.1f},{:.1f},{:g},{:g},{:g}\n", x.replicas[i],
                        x.flat[i], x.tree[i], x.simulated_flat[i],
                        x.simulated_tree[i], x.simulated_best[i]);
  train::write_atomically(path, text);
}

train::chart_series series(std::string name, const figures& x,
                           const std::vector<double>& values) {
  train::chart_series result{std::move(name), {}};
  for (std::size_t i = 0; i < values.size(); ++i)
    result.points.push_back({static_cast<double>(x.replicas[i]), values[i]});
  return result;
}

void draw(const figures& x, const std::string& path) {
  train::chart_panel here{"One process", "replicas", "us a round", {}, true};
  here.log10_y = true;
  auto there = here;
  there.title = "Simulated network, a node a replica";
  auto tree = fmt::format("tree, fan-in {}", fan_in);
  here.series = {series("flat", x, x.flat), series(tree, x, x.tree)};
  there.series = {series("flat", x, x.simulated_flat),
                  series(tree, x, x.simulated_tree),
                  series(fmt::format("tree, fan-in {}", best_power({})), x,
                         x.simulated_best)};
  train::write_atomically(path, train::render_svg({here, there}));
}

int run(int argc, char** argv) {
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_bench>();
  constexpr std::string_view figures_option = "--figures=";
  std::string folder;
  if (argc > 1 && std::string_view{argv[1]}.starts_with(figures_option)) {
    folder = argv[1] + figures_option.size();
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  auto given = parse_options(argc, argv, 7);
  require_part(given, {"memory", "rounds", "network"});
  if (!folder.empty() && !given.filter.empty())
    throw std::invalid_argument{"--figures: they need all parts"};
  config settings;
  caf::actor_system system{settings};
  report out{"Replicas of a round of 2 * 256 float32", given};
  figures result;
  if (given.wants("memory"))
    measure_memory(system, out);
  if (given.wants("rounds"))
    measure(system, given, result, out);
  if (given.wants("network"))
    simulate(result, out);
  if (!folder.empty()) {
    write_table(result, folder + "/rounds.csv");
    draw(result, folder + "/rounds.svg");
  }
  out.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, run);
}
