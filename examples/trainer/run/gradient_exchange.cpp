#include "trainer/run/gradient_exchange.hpp"

#include "trainer/run/error_text.hpp"
#include "trainer/run/gradient_sum.hpp"

#include "syncnorm/caf_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace syncnorm::train {

namespace {

[[noreturn]] void fail(const caf::error& reason) {
  throw error{code_of(reason).value_or(errc::master_down), text_of(reason)};
}

std::size_t count_chunks(std::size_t elements, std::size_t chunk) {
  return std::max<std::size_t>(1, (elements + chunk - 1) / chunk);
}

template <class T>
std::vector<T> cut(const shared_array<T>& values, std::size_t begin,
                   std::size_t count) {
  auto rest = values.view().subspan(begin);
  auto some = rest.first(std::min(count, rest.size()));
  return {some.begin(), some.end()};
}

/// `count` elements from `begin` on; the first chunk also has the loss.
gradient_part chunk_of(const gradient_part& part, std::size_t begin,
                       std::size_t count) {
  gradient_part result;
  if (begin == 0)
    result.loss = part.loss;
  if (part.gradient.f32.size() > 0)
    result.gradient = flat_array{cut(part.gradient.f32, begin, count)};
  else if (part.gradient.f64.size() > 0)
    result.gradient = flat_array{cut(part.gradient.f64, begin, count)};
  return result;
}

/// Puts the sum together again.
class joined_sum {
public:
  explicit joined_sum(std::size_t elements) : elements_{elements} {}

  void add(const gradient_sum& x) {
    sum_.loss += x.loss;
    sum_.finite = sum_.finite && x.finite;
    sum_.seconds += x.seconds;
    append(f32_, x.gradient.f32);
    append(f64_, x.gradient.f64);
  }

  gradient_sum take() {
    sum_.gradient = f32_.empty() ? flat_array{std::move(f64_)}
                                 : flat_array{std::move(f32_)};
    return std::move(sum_);
  }

private:
  template <class T>
  void append(std::vector<T>& all, const shared_array<T>& some) const {
    if (some.size() == 0)
      return;
    all.reserve(elements_);
    all.insert(all.end(), some.begin(), some.end());
  }

  std::size_t elements_;
  gradient_sum sum_;
  std::vector<float> f32_;
  std::vector<double> f64_;
};

} // namespace

std::string gradient_lane(std::size_t lane) {
  return lane == 0 ? "gradients" : fmt::format("gradients ({})", lane);
}

gradient_exchange::gradient_exchange(caf::actor_system& system,
                                     caf::timespan deadline,
                                     std::size_t elements, std::size_t chunk)
    : elements_{elements},
      chunk_{chunk},
      chunks_{count_chunks(elements, chunk)} {
  while (lanes_.size() < std::min(chunks_, max_gradient_lanes)) {
    auto one = std::make_unique<owner>(
        system,
        sync_options{.layer = gradient_lane(lanes_.size()),
                     .deadline = deadline},
        sync_reduction<gradient_part, gradient_sum>{merge_gradients,
                                                    finish_gradients});
    masters_.push_back(one->handle());
    lanes_.emplace_back(std::move(one));
  }
}

gradient_exchange::gradient_exchange(caf::actor_system& system,
                                     gradient_masters masters,
                                     std::size_t index, std::size_t elements,
                                     std::size_t chunk)
    : elements_{elements},
      chunk_{chunk},
      chunks_{count_chunks(elements, chunk)},
      masters_{std::move(masters)} {
  auto expected = std::min(chunks_, max_gradient_lanes);
  if (masters_.size() != expected)
    throw error{errc::shape_mismatch,
                fmt::format("gradients: expected {} masters for a model of {} "
                            "weights, got {}",
                            expected, elements, masters_.size())};
  for (const auto& master : masters_) {
    auto joined = register_slave_thread<gradient_part, gradient_sum>(
        system, master, static_cast<std::int64_t>(index));
    if (!joined)
      fail(joined.error());
    lanes_.emplace_back(std::make_unique<pipe>(std::move(*joined)));
  }
}

gradient_sum gradient_exchange::run(const gradient_part& part) {
  auto found = part.gradient.size();
  if (found != 0 && found != elements_)
    throw error{
        errc::shape_mismatch,
        fmt::format("gradients: expected {} values, got {}", elements_, found)};
  if (chunks_ > 1)
    return run_chunks(part);
  send(0, part);
  return await(0);
}

gradient_sum gradient_exchange::run_chunks(const gradient_part& part) {
  joined_sum sum{elements_};
  auto lanes = lanes_.size();
  for (std::size_t i = 0; i < chunks_ + lanes; ++i) {
    if (i >= lanes)
      sum.add(await(i - lanes));
    if (i < chunks_)
      send(i, chunk_of(part, i * chunk_, chunk_));
  }
  return sum.take();
}

void gradient_exchange::send(std::size_t i, const gradient_part& part) {
  auto& way = lanes_[i % lanes_.size()];
  if (auto* owned = std::get_if<0>(&way))
    std::ignore = (*owned)->send_master(part);
  else
    std::ignore = std::get<1>(way)->run_slave_async(part);
}

gradient_sum gradient_exchange::await(std::size_t i) {
  auto& way = lanes_[i % lanes_.size()];
  auto sum = way.index() == 0 ? std::get<0>(way)->await_reply()
                              : std::get<1>(way)->await_reply();
  if (!sum)
    fail(sum.error());
  return std::move(*sum);
}

void gradient_exchange::give_up(const std::string& why) {
  // A round without its leader cannot be completed: the masters end, and with
  // them everybody's rounds.
  for (auto& way : lanes_)
    if (auto* owned = std::get_if<0>(&way))
      owned->reset();
    else
      std::ignore = std::get<1>(way)->give_up(why);
}

} // namespace syncnorm::train
