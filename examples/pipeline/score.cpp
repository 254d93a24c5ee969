#include "score.hpp"

#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace pipeline {

namespace {

double root_mean_square(std::span<const float> record) {
  double sum = 0;
  for (double x : record)
    sum += x * x;
  return std::sqrt(sum / static_cast<double>(record.size()));
}

syncnorm::double_array scores_of(const batch& x) {
  std::vector<double> result;
  for (const auto& part : x.parts) {
    auto view = part.view();
    const auto* row = static_cast<const float*>(view.data());
    auto width = static_cast<std::size_t>(view.shape().channels);
    for (std::int64_t n = 0; n < view.shape().samples; ++n, row += width)
      result.push_back(root_mean_square({row, width}));
  }
  return syncnorm::double_array{std::move(result)};
}

} // namespace

score::score(caf::actor_config& config, sink_actor next)
    : stage_actor::base{config},
      next_{std::move(next)} {}

void score::on_exit() {
  next_ = nullptr;
}

score::behavior_type score::make_behavior() {
  link_to(next_);
  return {
      [this](batch_atom, const batch& x) {
        syncnorm::compat::send(this, next_, scores_atom_v, x.number,
                               scores_of(x));
      },
      [this](end_atom, const totals& x) {
        syncnorm::compat::send(this, next_, end_atom_v, x);
      },
  };
}

} // namespace pipeline
