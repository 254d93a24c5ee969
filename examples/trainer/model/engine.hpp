#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/plan/settings.hpp"
#include "trainer/plan/sgd.hpp"
#include "trainer/run/messages.hpp"

#include "syncnorm/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace syncnorm::train {

/// What one replica computes with: its copy of the model on its device, and of
/// the optimizer. Knows nothing of messages; uses libtorch, which this header
/// hides. One thread uses it at a time. Errors are `failure` with one line, or
/// `syncnorm::error` from a synchronized layer.
class engine {
public:
  /// Builds the model and gives it the weights that follow from the seed.
  /// @throws failure if the device is not there.
  engine(const settings& options, const device& where, dataset_ptr data);
  engine(engine&& other) noexcept;
  ~engine();

  /// Call once on the thread that will use this engine: one thread computes;
  /// only the replicas run in parallel.
  static void prepare_thread();

  /// Number of GPUs that libtorch can use.
  static std::size_t count_gpus();

  /// Joins the batch-norm layers of that many replicas, if they are
  /// synchronized: as the first replica, which the others follow.
  /// @returns what to pass to `follow`.
  layer_masters lead(caf::actor_system& system, std::size_t replicas);

  /// Joins the layers as replica `index`, 1 or more.
  void follow(caf::actor_system& system, std::size_t index,
              const layer_masters& masters);

  /// Hash of the model's weights and statistics by name, type and shape.
  [[nodiscard]] std::uint64_t fingerprint() const;

  /// Number of weights.
  [[nodiscard]] std::size_t size() const noexcept;

  /// Loss and gradient of some samples of the training part.
  /// @param samples their indices; none: the replica only takes part in the
  ///                exchange of statistics.
  /// @param batch samples of the whole batch, by which loss and gradient are
  ///              divided.
  /// @param epoch   decides how the images are moved.
  gradient_part differentiate(std::span<const std::uint32_t> samples,
                              std::size_t batch, std::uint64_t epoch);

  /// Undoes what the last `differentiate` did to the statistics.
  void roll_back();

  /// Takes one step down the gradient of the whole batch.
  void descend(const sgd_settings& settings, const flat_array& gradient);

  /// Runs held-out samples [begin, end) in evaluation mode.
  evaluation evaluate(std::size_t begin, std::size_t end);

  /// Hash (FNV-1a, 64 bits, of 64-bit words) of the weights as they are on the
  /// device, of the optimizer's state, and of the running statistics unless the
  /// norm is local.
  [[nodiscard]] std::uint64_t hash() const;

  /// Weights, statistics and the optimizer's state.
  [[nodiscard]] model_state state() const;

  /// Becomes equal to the engine that `state` comes from, whose device may
  /// differ.
  /// @throws failure with what was expected and found if that has another
  ///         model, another type or other sizes; nothing has changed then.
  void assume(const model_state& state);

  /// Tells the other replicas, which may be waiting in a synchronized layer,
  /// that this one does not come.
  void give_up(const std::string& why) noexcept;

private:
  struct implementation;
  std::unique_ptr<implementation> self_;
};

} // namespace syncnorm::train
