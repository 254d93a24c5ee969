#pragma once

#include "trainer/model/network.hpp"

#include "syncnorm/detail/caf_compat.hpp"

#include <string>
#include <vector>

namespace syncnorm::train {

/// Makes the synchronized layers of `models` copies of each other, for replicas
/// that have a graph and a thread each.
/// @throws syncnorm::error if they cannot be joined.
void synchronize_models(caf::actor_system& system,
                        const std::vector<network_ptr>& models);

/// Tells the other copies of every synchronized layer that this one takes part
/// no more.
void give_up_model(network& model, const std::string& why) noexcept;

/// Seconds that this copy has waited in synchronized layers since the last
/// call.
double take_waiting_of(network& model) noexcept;

/// Whether `layer` is a batch norm of either kind.
[[nodiscard]] bool is_norm(const torch::nn::Module& layer) noexcept;

} // namespace syncnorm::train
