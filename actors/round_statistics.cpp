#include "round_statistics.hpp"

#include <array>
#include <bit>

namespace syncnorm::detail {

bool is_row(std::span<const round_message> messages) {
  auto n = std::int64_t(messages.size());
  auto first = messages.front().identifier;
  return messages.back().identifier - first == n - 1
         && first % std::int64_t(std::bit_ceil(std::uint64_t(n))) == 0;
}

std::int64_t batches_after(const statistics_update& update,
                           std::int64_t count) {
  auto counts = count != 0 && update.running.size() != 0;
  return update.num_batches_tracked + (counts ? 1 : 0);
}

finalize_options finalize_options_of(const statistics_update& update,
                                     std::int64_t batches) {
  finalize_options result{
      .eps = update.eps, .mode = update.mode, .momentum = update.momentum};
  if (update.cumulative)
    result.momentum = batches == 0 ? 0.0 : 1.0 / double(batches);
  return result;
}

void learn_online(const moments_view& batch, moments_view& seen,
                  std::int64_t& batches, double eps, eps_mode mode) {
  if (batch.count != 0) {
    std::array<const_moments_view, 2> parts{seen, batch};
    merge_moments({}, parts, seen);
    ++batches;
  }
  finalize_moments({}, seen, {.eps = eps, .mode = mode}, batch.mean, batch.m2,
                   {});
}

} // namespace syncnorm::detail
