#pragma once

#include <torch/nn/module.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace syncnorm::nn {

/// Lasting copies of a model that follow its changes. Their parameters are the
/// model's own where the device is the same, and copies elsewhere; the same
/// backward call adds their gradients to the model's, in the order of the
/// copies. Copy 0 shares the model's buffers, so that what its forward pass
/// writes there is written to the model; the other copies have buffers of their
/// own, set from the model's by `refresh`.
///
/// Copies are made by `clone()`, so plain members of your own modules and
/// options of libtorch's layers are copied only once. Synchronized layers
/// follow the model's momentum, epsilon and epsilon mode. Where the model
/// refers to one sub-module twice, the copies have two that share parameters
/// and buffers. `clone()` calls `reset()`, where layers initialize themselves:
/// making copies takes numbers from libtorch's global random generator. The
/// `reset()` of a module must make what the module registers; otherwise copies
/// share it with the model. This is refused, except for a part that is frozen,
/// in evaluation and on the copies' device. `clone()` gives such a part of the
/// model other tensors, which have the memory, gradients and flags of the
/// former ones. Also refused is a class derived from one of libtorch's own,
/// such as `Sequential`, if `clone()` copies it as its base class.
class replica_set {
public:
  /// @param model   derived from libtorch's `Cloneable`, or with a `clone` of
  ///                its own.
  /// @param devices one for each copy; a device may be listed several times.
  /// @throws error `invalid_argument` if there is no model or no device, or if
  ///         `clone` fails or makes something other than a copy: the text says
  ///         what `clone` reported, or names the part of the model.
  replica_set(std::shared_ptr<torch::nn::Module> model,
              std::vector<torch::Device> devices);

  /// Makes the copies follow the model for the next forward pass: parameters,
  /// buffers, training flags, the options named above, and the edges along
  /// which gradients come back. Graphs of former passes stay as they are, but
  /// they notice what was written to the model's parameters, as graphs of the
  /// model itself would.
  /// @returns whether the copies were made anew. They are if the model has
  ///          other sub-modules than before, or more or fewer parameters or
  ///          buffers; if one of these has other memory (`set_data`, which `to`
  ///          and `load` call); if a parameter was frozen; or if a graph of a
  ///          former pass has saved a buffer of a copy that would change.
  /// @throws error as the constructor does; the copies are then the former
  ///         ones. `invalid_argument` also for a parameter or buffer that a
  ///         copy shares with the model but cannot use that way: it requires a
  ///         gradient, is of a module in training, or belongs on another
  ///         device.
  bool refresh();

  /// The copies, one for each device.
  [[nodiscard]] const std::vector<std::shared_ptr<torch::nn::Module>>&
  copies() const noexcept {
    return copies_;
  }

  /// The copies' devices.
  [[nodiscard]] const std::vector<torch::Device>& devices() const noexcept {
    return devices_;
  }

private:
  using modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  /// A sub-module of the model, and the names of the parameters, buffers and
  /// children that it has registered.
  struct registered {
    /// Owned by others: another module that is later at the same address is not
    /// the same one.
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
  /// What the model had when the copies were made, and in which memory.
  std::vector<registered> seen_;
  std::vector<torch::Tensor> memory_;
  /// How many references each buffer of the copies has while no graph has saved
  /// it.
  std::vector<std::size_t> references_;
};

} // namespace syncnorm::nn
