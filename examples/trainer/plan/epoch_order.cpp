#include "trainer/plan/epoch_order.hpp"

#include <numeric>

namespace syncnorm::train {

namespace {

std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;

} // namespace

random_stream::random_stream(std::uint64_t seed, std::uint64_t number) noexcept
    : state_{mix(mix(seed + golden) + golden * (number + 1))} {}

std::uint64_t random_stream::next() noexcept {
  state_ += golden;
  return mix(state_);
}

std::uint64_t random_stream::below(std::uint64_t bound) noexcept {
  // Numbers from the incomplete last group would favour small results.
  auto first_fair = (0 - bound) % bound;
  auto x = next();
  while (x < first_fair)
    x = next();
  return x % bound;
}

double random_stream::uniform() noexcept {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

epoch_order::epoch_order(std::size_t samples, std::uint64_t seed,
                         std::uint64_t epoch)
    : order_(samples) {
  std::iota(order_.begin(), order_.end(), 0U);
  random_stream random{seed, epoch};
  for (auto i = samples; i > 1; --i)
    std::swap(order_[i - 1], order_[random.below(i)]);
}

position_range shard_of(position_range whole, std::size_t replicas,
                        std::size_t index) {
  return {whole.begin + whole.size() * index / replicas,
          whole.begin + whole.size() * (index + 1) / replicas};
}

} // namespace syncnorm::train
