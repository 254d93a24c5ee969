#pragma once

#include <torch/nn/module.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace syncnorm::nn {

/// Copies of a model that stay, and follow it: parameters are the model's own
/// where the device is the same, and copies elsewhere; their gradients are
/// added to those of the model's, in the order of the copies, by the same
/// backward call. Copy 0 shares the model's buffers, so that what its forward
/// pass writes there is the model's; the others have their own, set from the
/// model's by `refresh`.
///
/// Copies are made by `clone()`, so plain members of a user's own module and
/// options of libtorch's layers are copied once. Synchronized layers follow
/// momentum, epsilon and its mode. Where the model refers to one sub-module
/// twice, the copies have two that share parameters and buffers. `clone()`
/// calls `reset()`, where layers initialize themselves: making copies takes
/// numbers from libtorch's global random generator. What a module registers,
/// its `reset()` must make, or copies share it with the model: refused, but
/// for a part that is frozen, in evaluation and on the copies' device.
/// `clone()` gives such a part of the model other tensors: they have the
/// memory, the gradients and the flags of those before. A class derived from
/// one of libtorch's own, such as a `Sequential`, that `clone()` copies as what
/// it is derived from is refused as well.
class replica_set {
public:
  /// @param model   derived from libtorch's `Cloneable`, or with a `clone` of
  ///                its own.
  /// @param devices one for each copy; a device may stand several times.
  /// @throws error `invalid_argument` if there is no model or no device, or
  ///         `clone` fails or makes something else than a copy: the text
  ///         names what it said, or the part of the model.
  replica_set(std::shared_ptr<torch::nn::Module> model,
              std::vector<torch::Device> devices);

  /// Makes the copies follow the model in the next forward pass: parameters,
  /// buffers, training flags, the options named above, and the edges on which
  /// gradients come back. Graphs of former passes stay as they are, but notice,
  /// as those of the model itself would, what was written to its parameters.
  /// @returns whether the copies were made anew, as they are where the model
  ///          has other sub-modules than it had, or more or fewer parameters or
  ///          buffers, or one of them has other memory (`set_data`, which `to`
  ///          and `load` call), a parameter was frozen, or a graph of a former
  ///          pass has saved a buffer of a copy that would change.
  /// @throws error as the constructor; then the copies are those of before.
  ///         `invalid_argument` also for a parameter or buffer that a copy
  ///         shares with the model and cannot use so: it wants a gradient, is
  ///         of a module in training, or belongs on another device.
  bool refresh();

  /// The copies, one a device.
  [[nodiscard]] const std::vector<std::shared_ptr<torch::nn::Module>>&
  copies() const noexcept {
    return copies_;
  }

  /// Their devices.
  [[nodiscard]] const std::vector<torch::Device>& devices() const noexcept {
    return devices_;
  }

private:
  using modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  /// A sub-module of the model, and the names of the parameters, buffers and
  /// children that it has registered.
  struct registered {
    /// Owned by others: another one that comes to lie there is not the same.
    std::weak_ptr<const torch::nn::Module> module;
    std::array<std::vector<std::string>, 3> names;

    friend bool operator==(const registered& a, const registered& b) {
      return !a.module.owner_before(b.module)
             && !b.module.owner_before(a.module) && a.names == b.names;
    }
  };

  static void list(const std::shared_ptr<torch::nn::Module>& m,
                   std::vector<registered>& out);
  [[nodiscard]] modules make_copies() const;
  [[nodiscard]] bool is_stale() const;

  std::shared_ptr<torch::nn::Module> model_;
  std::vector<torch::Device> devices_;
  modules copies_;
  /// What the model had when the copies were made, and where.
  std::vector<registered> seen_;
  std::vector<torch::Tensor> memory_;
  /// References to each buffer of the copies that no graph has saved.
  std::vector<std::size_t> references_;
};

} // namespace syncnorm::nn
