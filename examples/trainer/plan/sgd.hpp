#pragma once

#include <span>

namespace syncnorm::train {

/// What one step of gradient descent depends on besides the gradient.
struct sgd_settings {
  double learning_rate = 0.1;
  double momentum = 0.9;
  double weight_decay = 0.0;
};

/// One step of stochastic gradient descent with momentum, in place, per weight:
/// `v = momentum * v + (gradient + weight_decay * weight)`,
/// `weight -= learning_rate * v`: as torch.optim.SGD without dampening, if v
/// starts at zero. It runs on the host in T for every device, so that replicas
/// on different devices keep the same bits.
/// @param weights, velocity, gradient of equal length; T is float or double.
template <class T>
void sgd_step(const sgd_settings& settings, std::span<T> weights,
              std::span<T> velocity, std::span<const T> gradient);

} // namespace syncnorm::train
