#include "trainer/plan/sgd.hpp"

#include <cstddef>

namespace syncnorm::train {

template <class T>
void sgd_step(const sgd_settings& settings, std::span<T> weights,
              std::span<T> velocity, std::span<const T> gradient) {
  const auto rate = static_cast<T>(settings.learning_rate);
  const auto momentum = static_cast<T>(settings.momentum);
  const auto decay = static_cast<T>(settings.weight_decay);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    velocity[i] = momentum * velocity[i] + (gradient[i] + decay * weights[i]);
    weights[i] -= rate * velocity[i];
  }
}

template void sgd_step(const sgd_settings&, std::span<float>, std::span<float>,
                       std::span<const float>);
template void sgd_step(const sgd_settings&, std::span<double>,
                       std::span<double>, std::span<const double>);

} // namespace syncnorm::train
