// What synchronization costs a layer: four copies, one thread each, forward and
// backward of (8, 64, 56, 56) float32 per copy, against the same four copies
// without synchronization, and against libtorch's plain batch normalization on
// the same four threads. All contestants run in one process, in turn. A fourth
// one has bare barriers in place of the rounds: if each copy has a core of its
// own, no synchronization takes less. So its extra time over the unsynchronized
// copies is due to the machine; the layer's extra time over it is due to the
// library.
//
// Before the timing, the synchronized copies' results are compared with
// libtorch's on the joined batch, the others' with libtorch's on each copy's
// own; without libtorch, with the kernels' results of one call each.
// `--filter` has no parts to choose from.

#include "bench/check_same.hpp"
#include "bench/collective/threads.hpp"
#include "bench/layer/peer.hpp"
#include "bench/support.hpp"

#include "syncnorm/batch_norm_layer.hpp"
#include "syncnorm/batch_norm_master.hpp"
#include "syncnorm/detail/spin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace syncnorm;
using namespace syncnorm::bench;

constexpr std::size_t copy_count = 4;
constexpr std::int64_t channel_count = 64;
constexpr int passes_per_run = 10;
/// Threads that a turn leaves looking for work sleep by then: after 0.5 ms.
constexpr std::chrono::milliseconds until_idle{2};
/// Runs of each contestant for each round asked for: a run takes some 20 ms,
/// and the goal is a matter of hundredths.
constexpr int runs_per_round = 8;

struct bench_config : caf::actor_system_config {
  bench_config() {
    detail::add_types<caf::id_block::syncnorm>(*this);
  }
};

constexpr std::int64_t samples_per_copy = 8;

/// The tensors of one copy; all contestants work on the same ones.
struct tensors {
  std::vector<float> x, y, dy, dx;
  std::vector<float> weight = std::vector<float>(channel_count, 1);
  std::vector<float> bias = std::vector<float>(channel_count, 0);
  tensor_layout layout;

  explicit tensors(unsigned seed, std::int64_t samples = samples_per_copy)
      : layout{make_layout(
          dtype::float32,
          std::array<std::int64_t, 4>{samples, channel_count, 56, 56})} {
    auto size = static_cast<std::size_t>(samples * layout.sample_stride);
    std::minstd_rand engine{seed};
    std::uniform_real_distribution<float> values{-1, 3};
    for (auto* array : {&x, &y, &dy, &dx}) {
      array->resize(size);
      std::ranges::generate(*array, [&] { return values(engine); });
    }
  }

  layer_memory memory() {
    return {layout,      56,        56,        x.data(),
            y.data(),    dy.data(), dx.data(), weight.data(),
            bias.data(), 1e-5};
  }
};

using all_tensors = std::vector<tensors>;

/// Four copies, each with its own thread, that run `passes_per_run` passes in
/// parallel.
class contestant {
public:
  explicit contestant(worker_threads::work work)
      : threads_{copy_count, std::move(work)} {}

  void run() {
    threads_.start(passes_per_run);
    if (!threads_.join())
      throw std::runtime_error{"bench/layer: a copy has failed"};
  }

private:
  worker_threads threads_;
};

using layers = std::vector<std::unique_ptr<batch_norm_layer>>;

layers make_layers(caf::actor_system& system, bool synchronized) {
  layers result;
  for (std::size_t i = 0; i < copy_count; ++i)
    result.push_back(std::make_unique<batch_norm_layer>(
        system,
        batch_norm_options{.name = "bench", .channels = channel_count}));
  if (synchronized)
    execute_replication_callbacks(result);
  return result;
}

worker_threads::work run_layers(layers& copies, all_tensors& data) {
  return [&](std::int64_t i, std::int64_t passes) {
    auto r = static_cast<std::size_t>(i - 1);
    auto& t = data[r];
    const_tensor_view x{t.x.data(), t.layout};
    const_tensor_view dy{t.dy.data(), t.layout};
    try {
      for (; passes > 0; --passes) {
        auto tape = copies[r]->forward(x, {t.y.data(), t.layout});
        copies[r]->backward(dy, x, tape, {t.dx.data(), t.layout});
      }
    } catch (const std::exception& reason) {
      std::fprintf(stderr, "%s\n", reason.what());
      return false;
    }
    return true;
  };
}

/// A barrier for copies that each have a core of their own: none ever sleeps.
class bare_barrier {
public:
  void wait() {
    auto round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1) + 1 == copy_count) {
      arrived_.store(0);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    while (round_.load(std::memory_order_acquire) == round)
      detail::relax();
  }

private:
  std::atomic<std::size_t> arrived_ = 0;
  std::atomic<std::uint32_t> round_ = 0;
};

/// Each copy's reply to its own message alone, after all have reached the
/// barrier.
batch_norm_reply meet(bare_barrier& barrier, batch_norm_message message) {
  barrier.wait();
  return merge_round(std::move(message));
}

/// The layers' kernels, with a barrier where the layers have a round.
worker_threads::work run_with_barriers(layers& copies, bare_barrier& barrier,
                                       all_tensors& data) {
  return [&](std::int64_t i, std::int64_t passes) {
    auto r = static_cast<std::size_t>(i - 1);
    auto& copy = copies[r]->replica();
    auto& t = data[r];
    const_tensor_view x{t.x.data(), t.layout};
    const_tensor_view dy{t.dy.data(), t.layout};
    tensor_view y{t.y.data(), t.layout};
    tensor_view dx{t.dx.data(), t.layout};
    for (; passes > 0; --passes) {
      auto tape =
          copy.end_forward(meet(barrier, copy.begin_forward(x, y)), x, y);
      auto reply = meet(barrier, copy.begin_backward(dy, x, tape, dx));
      copy.end_backward(reply, dy, x, tape, dx);
    }
    return true;
  };
}

worker_threads::work run_peers(std::vector<std::unique_ptr<peer>>& peers,
                               all_tensors& data) {
  return [&](std::int64_t i, std::int64_t passes) {
    auto r = static_cast<std::size_t>(i - 1);
    // Made in the thread that uses it: it sets libtorch's number of threads for
    // that thread.
    if (!peers[r])
      peers[r] = make_plain_peer(data[r].memory());
    for (; passes > 0; --passes) {
      peers[r]->forward();
      peers[r]->backward();
    }
    return true;
  };
}

/// Throws unless y and dx of every copy are those that `expected` for this copy
/// points to.
template <class Expected>
void check(const char* who, const all_tensors& data, Expected expected) {
  constexpr float tolerance = 5e-4F;
  for (std::size_t r = 0; r < data.size(); ++r) {
    auto name = fmt::format("bench/layer: {}, copy {}: ", who, r);
    auto [y, dx] = expected(r);
    check_same(name + "y", data[r].y.data(), y, data[r].layout, tolerance);
    check_same(name + "dx", data[r].dx.data(), dx, data[r].layout, tolerance);
  }
}

/// Checks that the synchronized copies' results are libtorch's for the joined
/// batch.
void check_joined(const all_tensors& data) {
  tensors joined{0, samples_per_copy * std::int64_t{copy_count}};
  auto size = data[0].x.size();
  for (std::size_t r = 0; r < copy_count; ++r) {
    std::ranges::copy(data[r].x, joined.x.data() + r * size);
    std::ranges::copy(data[r].dy, joined.dy.data() + r * size);
  }
  auto whole = make_plain_peer(joined.memory());
  whole->forward();
  whole->backward();
  check("synchronized", data, [&](std::size_t r) {
    return std::pair{static_cast<const float*>(whole->output()) + r * size,
                     static_cast<const float*>(whole->input_gradient())
                         + r * size};
  });
}

/// Overwrites one contestant's results with NaN, so that no other passes with
/// them.
void forget_results(all_tensors& data) {
  for (auto& one : data)
    for (auto* array : {&one.y, &one.dx})
      std::ranges::fill(*array, std::numeric_limits<float>::quiet_NaN());
}

/// How long each copy has waited so far, in milliseconds.
std::vector<double> wait_times(const layers& copies) {
  std::vector<double> result;
  for (const auto& copy : copies)
    result.push_back(
        std::chrono::duration<double, std::milli>(copy->waited()).count());
  return result;
}

/// How the synchronized copies have spent their time since their waits were
/// `before`: the slowest copy is the one that waits least.
void report_waiting(report& out, const layers& copies,
                    const std::vector<double>& before, double step_ms,
                    int runs) {
  auto waits = wait_times(copies);
  for (std::size_t r = 0; r < waits.size(); ++r)
    waits[r] = (waits[r] - before[r]) / (runs * passes_per_run);
  auto slowest = std::ranges::min_element(waits) - waits.begin();
  for (std::size_t r = 0; r < waits.size(); ++r)
    out.add(reported(
        fmt::format("layer bench: waiting of copy {}{}, forward + backward", r,
                    std::ptrdiff_t(r) == slowest ? " (the slowest)" : ""),
        waits[r], step_ms, "ms", waits[r] / step_ms));
}

/// All contestants, on the same tensors.
struct arena {
  explicit arena(caf::actor_system& system)
      : synchronized{make_layers(system, true)},
        apart{make_layers(system, false)},
        meeting{make_layers(system, false)} {
    for (unsigned r = 0; r < copy_count; ++r)
      data.emplace_back(r + 1);
  }

  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  all_tensors data;
  layers synchronized;
  layers apart;
  layers meeting;
  bare_barrier barrier;
  std::vector<std::unique_ptr<peer>> peers{copy_count};
  contestant ours{run_layers(synchronized, data)};
  contestant unsynchronized{run_layers(apart, data)};
  contestant at_barriers{run_with_barriers(meeting, barrier, data)};
  contestant plain{run_peers(peers, data)};
};

/// On fewer cores, four copies wait for each other's time slices.
bool are_side_by_side() {
  return static_cast<std::size_t>(detail::usable_cores()) >= copy_count;
}

/// @throws std::runtime_error if a contestant's results are wrong.
void verify(arena& all) {
  all.plain.run();
  auto own = [&](std::size_t r) {
    return std::pair{all.peers[r]->output(), all.peers[r]->input_gradient()};
  };
  auto verify_own = [&](const char* who, contestant& one) {
    forget_results(all.data);
    one.run();
    check(who, all.data, own);
  };
  verify_own("unsynchronized", all.unsynchronized);
  if (are_side_by_side())
    verify_own("bare barriers", all.at_barriers);
  forget_results(all.data);
  all.ours.run();
  check_joined(all.data);
}

std::vector<candidate> candidates_of(arena& all) {
  std::vector<candidate> result{
      {"synchronized", [&] { all.ours.run(); }},
      {"unsynchronized", [&] { all.unsynchronized.run(); }}};
  if (has_libtorch())
    result.push_back({"libtorch", [&] { all.plain.run(); }});
  if (are_side_by_side())
    result.push_back({"bare barriers", [&] { all.at_barriers.run(); }});
  return result;
}

double to_ms(double seconds) {
  return seconds * 1e3 / passes_per_run;
}

/// Adds the rows for the cost of synchronization.
void report_cost(report& out, const timing& ours, const timing& apart) {
  auto cost =
      reported("layer: synchronized / unsynchronized", to_ms(ours.median),
               to_ms(apart.median), "ms", median_ratio(ours, apart));
  if (are_side_by_side()) {
    cost.goal = "<= 1.05";
    cost.met = cost.ratio <= 1.05;
  }
  out.add(cost);
}

void report_barriers(report& out, const timing& ours, const timing& apart,
                     const timing& met) {
  out.add(reported("layer: bare barriers / unsynchronized", to_ms(met.median),
                   to_ms(apart.median), "ms", median_ratio(met, apart)));
  out.add(reported("layer: synchronized / bare barriers", to_ms(ours.median),
                   to_ms(met.median), "ms", median_ratio(ours, met)));
}

void report_times(report& out, const std::vector<candidate>& candidates,
                  const std::vector<timing>& times) {
  for (std::size_t i = 0; i < candidates.size(); ++i)
    out.add("layer/" + candidates[i].name, times[i], 0);
  report_cost(out, times[0], times[1]);
  if (are_side_by_side())
    report_barriers(out, times[0], times[1], times.back());
  if (has_libtorch())
    out.add(at_least(2, "layer: libtorch's plain BatchNorm / synchronized",
                     to_ms(times[0].median), to_ms(times[2].median), "ms",
                     median_ratio(times[2], times[0])));
}

int run(int argc, char** argv) {
  detail::init_types<caf::id_block::syncnorm>();
  auto given = parse_options(argc, argv);
  require_part(given, {});
  given.rounds *= runs_per_round;
  bench_config config;
  caf::actor_system system{config};
  arena all{system};
  verify(all);
  auto candidates = candidates_of(all);
  auto waited = wait_times(all.synchronized);
  auto times = time_in_turn(candidates, given.rounds, until_idle);
  report out{"A layer of four copies, (8, 64, 56, 56) float32 each, forward + "
             "backward",
             given};
  report_times(out, candidates, times);
  // Each candidate has run once more, as a warm-up.
  report_waiting(out, all.synchronized, waited, to_ms(times[0].median),
                 given.rounds + 1);
  out.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, run);
}
