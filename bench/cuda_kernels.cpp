// The CUDA kernels against the device's own copy bandwidth and, in a build that
// found libtorch with CUDA, its operators for synchronized batch norm. Times
// are by CUDA events; no call finds its input in the L2 cache. Before the
// timing, each side's results are compared with the CPU's.
//
//   cuda_kernels [--summary=FILE] [--benchmark_out=FILE] [--filter=TEXT]
//                [--rounds=N]

#include "bench/cuda_check.hpp"
#include "bench/cuda_peer.hpp"
#include "bench/cuda_timer.hpp"
#include "bench/support.hpp"
#include "syncnorm/batch_norm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>

using namespace syncnorm;
using namespace syncnorm::bench;

namespace {

constexpr bench_shape shapes[] = {{8, 64, 224, 224}, {32, 64, 112, 112},
                                  {32, 64, 56, 56},  {32, 256, 14, 14},
                                  {64, 512, 7, 7},   {256, 1024, 1, 1},
                                  {16, 4, 224, 224}, {1, 728, 96, 144}};

/// One of our operations and its counterpart.
struct contest {
  const char* name;
  /// Tensors read and written.
  int passes;
  std::function<void(std::size_t)> ours;
  void (peer::*theirs)(std::size_t);
  /// The least speed, as a multiple of libtorch's.
  double goal;
  operation which;
  /// Where ours leaves its results for number 0.
  results made;
};

channel_parameters parameters_of(const bench_tensors& t) {
  return {t.mean.data(), t.inv_std.data(), t.weight.data(), t.bias.data()};
}

void moments_of(const bench_tensors& t, std::size_t i) {
  moments_view out{0,
                   t.arrays[0].data(),
                   t.arrays[1].data(),
                   t.shape.channels,
                   dtype::float32,
                   t.layout.where};
  batch_moments({t.layout.where}, {t.x[i].data(), t.layout}, out,
                {t.scratch.data(), t.scratch_bytes});
}

void merge_and_finalize(const bench_tensors& t) {
  std::vector<const_moments_view> parts;
  for (std::int64_t r = 0; r < bench_parts; ++r) {
    auto offset = r * t.shape.channels;
    parts.push_back({t.layout.shape.per_channel(),
                     static_cast<const float*>(t.part_means.data()) + offset,
                     static_cast<const float*>(t.part_m2s.data()) + offset,
                     t.shape.channels, dtype::float32, t.layout.where});
  }
  moments_view total{0,
                     t.arrays[0].data(),
                     t.arrays[1].data(),
                     t.shape.channels,
                     dtype::float32,
                     t.layout.where};
  execution run{t.layout.where};
  merge_moments(run, parts, total);
  finalize_moments(run, total, {}, t.arrays[0].data(), t.arrays[1].data(),
                   {t.running_mean.data(), t.running_var.data()});
}

std::vector<contest> contests(const bench_tensors& t) {
  execution run{t.layout.where};
  const auto& made = t.arrays;
  results moments{{made[0].data(), made[1].data(), nullptr}};
  results totals{{made[0].data(), made[1].data(), t.running_mean.data(),
                  t.running_var.data()}};
  results sums{
      {made[0].data(), made[1].data(), made[2].data(), made[3].data()}};
  results elements{{}, t.out[0].data()};
  auto [n, c, h, w] = t.shape;
  // Three shapes where libtorch's first pass is weak.
  auto weak = (n == 32 && h == 112) || (n == 16 && c == 4) || c == 728;
  return {
      {"batch_moments", 1, [&t](std::size_t i) { moments_of(t, i); },
       &peer::stats, weak ? 1.5 : 1.0, operation::moments, moments},
      {"merge + finalize, 8 parts", 0,
       [&t](std::size_t) { merge_and_finalize(t); }, &peer::gather_stats, 1.0,
       operation::merge_and_finalize, totals},
      {"normalize", 2,
       [&t, run](std::size_t i) {
         normalize(run, {t.x[i].data(), t.layout}, parameters_of(t),
                   {t.out[i].data(), t.layout});
       },
       &peer::elemt, 1.0, operation::normalize, elements},
      {"backward_reduce", 2,
       [&t, run](std::size_t i) {
         backward_reduce(run, {t.dy[i].data(), t.layout},
                         {t.x[i].data(), t.layout}, parameters_of(t), nullptr,
                         {t.arrays[0].data(), t.arrays[1].data(),
                          t.arrays[2].data(), t.arrays[3].data()},
                         {t.scratch.data(), t.scratch_bytes});
       },
       &peer::backward_reduce, 1.0, operation::backward_reduce, sums},
      {"backward_input", 3,
       [&t, run](std::size_t i) {
         backward_input(run, {t.dy[i].data(), t.layout},
                        {t.x[i].data(), t.layout}, parameters_of(t),
                        {t.sum_dy.data(), t.sum_dy_xmu.data(),
                         t.layout.shape.per_channel()},
                        nullptr, {t.out[i].data(), t.layout});
       },
       &peer::backward_elemt, 1.0, operation::backward_input, elements},
  };
}

int copies_for(const bench_shape& shape, dtype type, std::size_t cache) {
  auto bytes =
      std::size_t(shape.samples * shape.channels * shape.height * shape.width)
      * size_of(type);
  return int(std::clamp<std::size_t>(3 * cache / bytes + 1, 2, 256));
}

std::string title(const bench_shape& shape, dtype type, memory_format format) {
  return fmt::format("({}, {}, {}, {}) {} {}", shape.samples, shape.channels,
                     shape.height, shape.width, to_string(type),
                     to_string(format));
}

/// State that the measurements of all shapes share.
struct session {
  options given;
  std::size_t cache;
  device_timer timer;
  report rows;
  /// Which results differ from the CPU's, and where.
  std::vector<std::string> wrong = {};

  template <class Call>
  [[nodiscard]] timing measure(const bench_tensors& tensors,
                               const std::string& name, int passes,
                               const Call& call) {
    auto result = timer.measure(tensors.x.size(), given.rounds, call);
    fmt::print("  {}: {:.1f} us, minimum {:.1f}, spread {:.1f} %\n", name,
               result.median * 1e6, result.minimum * 1e6, result.spread * 1e2);
    rows.add(name, result, std::int64_t(tensors.bytes) * passes);
    return result;
  }
};

/// How far libtorch's sums may be off, relative to their scale.
double peer_tolerance(operation which, dtype type) {
  // Its threads pass their sums to each other in the tensor's type, whose unit
  // roundoff is 2^-9 at most (libtorch 2.11, planes of channels); one more
  // rounding for what the sums consist of.
  constexpr double of_half_types = 1.0 / 256;
  // A thread adds up to 1600 terms one after the other in float32: 1600 times
  // 2^-24 at worst, and as much again for the other roundings.
  constexpr double one_after_the_other = 2e-4;
  return which == operation::backward_reduce && type != dtype::float32
             ? of_half_types
             : one_after_the_other;
}

/// Whether one call of each side gives the CPU's results. If not, the text is
/// kept: a wrong operation is not timed, and the run goes on and fails at the
/// end.
bool is_right(session& now, const bench_tensors& tensors,
              const expectations& expected, const contest& each,
              const std::string& label, peer* theirs) {
  auto name = fmt::format("{} {}", each.name, label);
  try {
    tensors.clear_results();
    each.ours(0);
    expected.check(name, each.which, each.made, 0);
    if (theirs == nullptr)
      return true;
    tensors.clear_results();
    (theirs->*each.theirs)(0);
    expected.check(name + " by libtorch", each.which, theirs->made(each.which),
                   peer_tolerance(each.which, tensors.layout.type));
    return true;
  } catch (const wrong_result& x) {
    now.wrong.emplace_back(x.what());
    return false;
  }
}

void compare(session& now, bench_tensors& tensors, const contest& each,
             const std::string& label, double copied, peer* theirs) {
  auto name = fmt::format("{} {}", each.name, label);
  auto ours = now.measure(tensors, name, each.passes, each.ours);
  auto speed = double(each.passes) * double(tensors.bytes) / ours.median * 1e-9;
  if (each.passes > 0) {
    auto line =
        at_least(0.85, name + ": copy", speed, copied, "GB/s", speed / copied);
    // The goal applies to tensors that no cache holds.
    if (tensors.bytes <= now.cache)
      line = reported(name + ": copy", speed, copied, "GB/s", speed / copied);
    now.rows.add(line);
  }
  if (theirs == nullptr)
    return;
  auto other = now.measure(tensors, name + " by libtorch", each.passes,
                           [&](std::size_t i) { (theirs->*each.theirs)(i); });
  now.rows.add(at_least(each.goal, name + ": libtorch", ours.median * 1e6,
                        other.median * 1e6, "us", other.median / ours.median));
}

void run_shape(session& now, const bench_shape& shape, dtype type,
               memory_format format) {
  auto label = title(shape, type, format);
  if (label.find(now.given.filter) == std::string::npos)
    return;
  bench_tensors tensors{shape, type, format,
                        copies_for(shape, type, now.cache)};
  auto theirs = make_peer(tensors);
  expectations expected{tensors};
  auto copy = now.measure(tensors, "copy " + label, 2, [&](std::size_t i) {
    require_success(cudaMemcpyAsync(tensors.out[i].data(), tensors.x[i].data(),
                                    tensors.bytes, cudaMemcpyDeviceToDevice));
  });
  auto copied = 2 * double(tensors.bytes) / copy.median * 1e-9;
  for (const auto& each : contests(tensors))
    if (is_right(now, tensors, expected, each, label, theirs.get()))
      compare(now, tensors, each, label, copied, theirs.get());
}

/// The device and the versions, for the head of the report.
std::string describe(std::size_t cache) {
  cudaDeviceProp properties{};
  require_success(cudaGetDeviceProperties(&properties, 0));
  int driver = 0;
  int runtime = 0;
  require_success(cudaDriverGetVersion(&driver));
  require_success(cudaRuntimeGetVersion(&runtime));
  return fmt::format(
      "CUDA kernels on {}, {} multiprocessors, compute capability {}.{}, L2 {} "
      "MiB; driver {}, CUDA {}, libtorch {}; shapes [N, C, H, W]; a round is "
      "16 calls by CUDA events",
      properties.name, properties.multiProcessorCount, properties.major,
      properties.minor, cache >> 20, driver, runtime, peer_version());
}

int run(const options& given) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    fmt::print("no CUDA device\n");
    return 77;
  }
  int cache = 0;
  require_success(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0));
  session now{given,
              std::size_t(cache),
              {},
              report{describe(std::size_t(cache)), given}};
  for (auto type : {dtype::float32, dtype::bfloat16})
    for (const auto& shape : shapes)
      for (auto format :
           {memory_format::channels_first, memory_format::channels_last})
        run_shape(now, shape, type, format);
  if (!now.rows.empty() || now.wrong.empty())
    now.rows.finish();
  for (const auto& text : now.wrong)
    fmt::print("WRONG: {}\n", text);
  return now.wrong.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
  try {
    return run(parse_options(argc, argv));
  } catch (const std::exception& e) {
    fmt::print(stderr, "cuda_kernels: {}\n", e.what());
    return 1;
  }
}
