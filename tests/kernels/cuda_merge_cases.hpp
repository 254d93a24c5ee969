#pragma once

// Checks of `merge_moments` and `finalize_moments`, for any backend.

#include "kernels/math.hpp"
#include "tests/kernels/cuda_placements.hpp"

#include <memory>

namespace syncnorm::testing {

/// Moments of R replicas in a backend's memory; some are empty, with NaN in
/// their arrays, or without arrays.
class placed_parts {
public:
  placed_parts(backend& ops, dtype type, std::int64_t channels, int replicas) {
    for (int r = 0; r < replicas; ++r) {
      auto seed = std::uint64_t(100 + r);
      auto count = r % 5 == 3 ? 0 : std::int64_t(1 + r * 7 % 13);
      std::vector<double> mean, m2;
      for (std::int64_t c = 0; c < channels; ++c) {
        mean.push_back(count == 0 ? NAN : 5 + noise(seed, std::uint64_t(c)));
        m2.push_back(count == 0 ? NAN
                                : std::abs(noise(~seed, std::uint64_t(c)))
                                      * double(count - 1));
      }
      means.push_back(std::make_unique<placed_array>(ops, type, mean));
      m2s.push_back(std::make_unique<placed_array>(ops, type, m2));
      auto nothing = r % 10 == 3;
      views.push_back({count, nothing ? nullptr : means.back()->data(),
                       nothing ? nullptr : m2s.back()->data(), channels, type,
                       ops.where()});
    }
  }

  std::vector<std::unique_ptr<placed_array>> means, m2s;
  std::vector<const_moments_view> views;
};

struct merged_result {
  std::int64_t count;
  std::vector<double> mean, m2;
};

inline merged_result run_merge(backend& ops,
                               std::span<const const_moments_view> parts) {
  auto channels = parts[0].channels;
  auto type = parts[0].type;
  std::vector<double> nothing(std::size_t(channels), NAN);
  placed_array mean{ops, type, nothing};
  placed_array m2{ops, type, nothing};
  moments_view out{0, mean.data(), m2.data(), channels, type, ops.where()};
  ops.merge_moments(parts, out);
  return {out.count, mean.read(), m2.read()};
}

/// The union of R parts has the moments of all their values, and the same bits
/// if aligned groups of `group` parts were merged before.
inline void check_merge(backend& ops, dtype type, std::int64_t channels,
                        int replicas, int group) {
  placed_parts parts{ops, type, channels, replicas};
  auto found = run_merge(ops, parts.views);
  auto label = "R " + std::to_string(replicas) + " C "
               + std::to_string(channels) + " " + to_string(type);

  std::vector<std::unique_ptr<placed_array>> arrays;
  std::vector<const_moments_view> groups;
  for (int first = 0; first < replicas; first += group) {
    auto size = std::min(group, replicas - first);
    auto some = run_merge(ops, std::span{parts.views}.subspan(
                                   std::size_t(first), std::size_t(size)));
    arrays.push_back(std::make_unique<placed_array>(ops, type, some.mean));
    arrays.push_back(std::make_unique<placed_array>(ops, type, some.m2));
    groups.push_back({some.count, arrays[arrays.size() - 2]->data(),
                      arrays.back()->data(), channels, type, ops.where()});
  }
  auto grouped = run_merge(ops, groups);
  CHECK_MESSAGE(found.count == grouped.count, label);

  std::vector<std::vector<double>> means, m2s;
  for (int r = 0; r < replicas; ++r) {
    means.push_back(parts.means[std::size_t(r)]->read());
    m2s.push_back(parts.m2s[std::size_t(r)]->read());
  }
  for (std::size_t c = 0; c < std::size_t(channels); ++c) {
    double count = 0;
    long double mean_sum = 0, m2_sum = 0;
    for (std::size_t r = 0; r < means.size(); ++r)
      if (parts.views[r].count > 0) {
        count += double(parts.views[r].count);
        mean_sum += double(parts.views[r].count) * means[r][c];
      }
    if (count == 0)
      continue;
    auto mean = double(mean_sum / count);
    for (std::size_t r = 0; r < means.size(); ++r)
      if (parts.views[r].count > 0)
        m2_sum += m2s[r][c]
                  + double(parts.views[r].count) * (means[r][c] - mean)
                        * (means[r][c] - mean);
    auto m2 = double(m2_sum);
    auto spread = std::sqrt(m2 / count);
    check_near(found.mean[c], mean,
               tolerance::of("merge_moments: mean", type)
                   * (std::abs(mean) + spread),
               label + " mean");
    check_near(found.m2[c], m2, tolerance::of("merge_moments: m2", type) * m2,
               label + " m2");
    if (found.mean[c] != grouped.mean[c] || found.m2[c] != grouped.m2[c])
      FAIL_CHECK(label << ": other bits after merging groups of " << group);
  }
}

/// `finalize_moments` follows its formulas; in place and with running
/// statistics.
inline void check_finalize(backend& ops, dtype type, std::int64_t count,
                           const finalize_options& options, bool running) {
  const std::vector<double> mean{1.5, -2, 0.25}, m2{3, 0, 1e-6};
  const std::vector<double> old_mean{7, 8, 9}, old_var{2, 3, 4};
  placed_array mean_there{ops, type, mean};
  placed_array m2_there{ops, type, m2};
  placed_array running_mean{ops, type, old_mean};
  placed_array running_var{ops, type, old_var};
  running_view view;
  if (running)
    view = {running_mean.data(), running_var.data()};
  // With a count of 0 there may be no arrays.
  ops.finalize_moments({count, count == 0 ? nullptr : mean_there.data(),
                        count == 0 ? nullptr : m2_there.data(), 3, type,
                        ops.where()},
                       options, mean_there.data(), m2_there.data(), view);
  auto found_mean = mean_there.read();
  auto found_inv_std = m2_there.read();
  auto found_running_mean = running_mean.read();
  auto found_running_var = running_var.read();
  auto unit = tolerance::of("finalize_moments", type);
  for (std::size_t c = 0; c < 3; ++c) {
    auto stored_m2 = type == dtype::float32 ? double(float(m2[c])) : m2[c];
    auto var = count == 0 ? 0 : stored_m2 / double(count);
    auto guarded = options.mode == eps_mode::plus ? var + options.eps
                                                  : std::max(var, options.eps);
    auto inv_std = 1 / std::sqrt(guarded);
    check_near(found_mean[c], count == 0 ? 0 : mean[c], 0, "mean");
    check_near(found_inv_std[c], inv_std, unit * inv_std, "inv_std");
    auto new_mean = old_mean[c];
    auto new_var = old_var[c];
    auto m = options.momentum;
    if (running && count > 0)
      new_mean = (1 - m) * old_mean[c] + m * mean[c];
    if (running && count > 1)
      new_var = (1 - m) * old_var[c] + m * stored_m2 / double(count - 1);
    check_near(found_running_mean[c], new_mean, unit * std::abs(new_mean),
               "running mean");
    check_near(found_running_var[c], new_var, unit * new_var, "running var");
  }
}

} // namespace syncnorm::testing
