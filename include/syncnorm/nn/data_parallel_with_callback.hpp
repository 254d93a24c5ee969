#pragma once

#include "syncnorm/message_types.hpp"
#include "syncnorm/nn/replaceable_children.hpp"
#include "syncnorm/nn/synchronize_options.hpp"

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::nn {

/// Options of `DataParallelWithCallback`.
struct DataParallelWithCallbackOptions {
  /// One copy on each device; a device may stand several times. Empty: every
  /// CUDA device, or where there is none the CPU, once.
  TORCH_ARG(std::vector<torch::Device>, devices);

  /// The one device that the output goes to; unset: the first of `devices`.
  TORCH_ARG(std::optional<torch::Device>, output_device);

  /// The dimension along which input is split and output is joined.
  TORCH_ARG(std::int64_t, dim) = 0;

  /// Deadline, groups and names of the synchronized layers.
  TORCH_ARG(SynchronizeOptions, synchronize);
};

/// Runs copies of a model side by side, each on its part of the batch and on
/// its thread, with synchronized layers synchronized: scatter, replicate,
/// replication callbacks, parallel apply, gather. One backward call goes
/// through the whole graph; it adds the gradients of all copies in the model's
/// parameters. Works on any mix of devices, CPU copies included. Each copy on a
/// CUDA device uses the stream that is the caller's current one there. Where
/// copies on CPUs and on CUDA devices mix, statistics go through the host, for
/// which the latter wait.
///
/// Threads: each copy uses its share of libtorch's threads, one at least. One
/// thread uses the object at a time: a thread of your own or a detached actor,
/// not one of CAF's workers, as it waits for actors, also while the layers
/// register: each of them for a minute at most, or for ever if no worker is
/// free to run the actors.
///
/// Between passes the model may change: parameters, buffers, training flags,
/// sub-modules, momentum and epsilon of synchronized layers. Other options and
/// plain members are copied once; see `replica_set`. A pass after parameters
/// were frozen, parameters, buffers or sub-modules registered, or the memory of
/// one replaced (`set_data`, which `to` and `load` call), makes the copies
/// anew, which takes longer, and so does one with another number of inputs.
/// Making copies, as the first pass does, takes numbers from libtorch's global
/// random generator. Where that matters, set its seed or put its state back
/// afterwards.
///
/// A forward pass may write to buffers, of which copy 0's are the model's own,
/// not to parameters: copies on one device share their memory. A model with
/// sparse parameters or buffers is refused.
///
/// A forward pass cannot call backward or `autograd::grad` through a
/// synchronized layer: the graph is that of all copies, and is complete when
/// they have ended. Nor can a backward pass call such a layer again, as
/// checkpointing does: other copies would have to call it at the same time.
/// Both are refused. Copies of `synchronize`, each with a graph and a thread of
/// its own, can do both. Tensor hooks may be registered anywhere.
///
/// It has no `clone()`: clone `module()` and make another one around that.
///
/// Errors: what a copy throws first is what the caller gets. The other copies
/// stop at their next synchronized layer. The object works again afterwards.
class DataParallelWithCallbackImpl : public torch::nn::Module,
                                     public ReplaceableChildren {
public:
  /// Runs a copy of the module on its input.
  using forward_function =
      std::function<torch::Tensor(torch::nn::Module&, const torch::Tensor&)>;

  /// Is called with a copy of the module, and its number from 0.
  using copy_function = std::function<void(torch::nn::Module&, std::size_t)>;

  /// @param system spawns the layers' masters; must outlive this object.
  /// @param module registered under the name "module"; a `ModuleHolder` or a
  ///               shared pointer to the module's own type, which `clone()`
  ///               can copy. Without a
  ///               `torch::Tensor forward(torch::Tensor)` it is run by
  ///               `parallel_apply` with a function.
  /// @throws error `invalid_argument` for a null module, `device_unavailable`
  ///         for a device that is not there.
  template <class ModuleType>
  DataParallelWithCallbackImpl(caf::actor_system& system,
                               std::shared_ptr<ModuleType> module,
                               DataParallelWithCallbackOptions options = {})
      : DataParallelWithCallbackImpl{system, std::move(module),
                                     own_forward<ModuleType>(),
                                     std::move(options)} {
    calls_own_forward_ = true;
  }

  /// The same for a `ModuleHolder`.
  template <class ModuleType>
  DataParallelWithCallbackImpl(
      caf::actor_system& system,
      const torch::nn::ModuleHolder<ModuleType>& module,
      DataParallelWithCallbackOptions options = {})
      : DataParallelWithCallbackImpl{system,
                                     module.is_empty() ? nullptr : module.ptr(),
                                     std::move(options)} {}

  /// @param forward runs a copy of the module, also of what `convert_model`
  ///                makes of it; may be null, as above.
  DataParallelWithCallbackImpl(caf::actor_system& system,
                               std::shared_ptr<torch::nn::Module> module,
                               forward_function forward,
                               DataParallelWithCallbackOptions options = {});

  ~DataParallelWithCallbackImpl() override;

  /// Splits `input` over the copies, runs them, joins their outputs; see
  /// `scatter` and `gather`. A batch with fewer samples than copies runs on as
  /// many copies as samples.
  /// @throws error `invalid_argument` if `input` is undefined or has no such
  ///         dimension; as `parallel_apply`.
  torch::Tensor forward(const torch::Tensor& input);

  /// Runs copy r on `inputs[r]`, as it is, and returns the outputs. There may
  /// be fewer inputs than devices; batches may be unequal or empty. A model
  /// that writes to its input needs inputs that are not views of one tensor.
  /// @throws error `invalid_argument` for no inputs or more than devices, or a
  ///         module without a forward function; as `replica_set` for one that
  ///         it cannot copy; whatever a copy threw first.
  std::vector<torch::Tensor>
  parallel_apply(const std::vector<torch::Tensor>& inputs);

  /// Calls `f` with each of `n` copies, at the same time, for models with
  /// several inputs or outputs or with a loss on each device. `scatter` splits
  /// what they need and `gather` joins what they make. Each call has its copy's
  /// thread and stream, and the caller's gradient mode and autocast settings.
  /// All copies must call the same synchronized layers in the same order.
  /// @throws error `invalid_argument` if `n` is not 1 to the number of devices;
  ///         as `replica_set` for a module that it cannot copy; whatever `f`
  ///         threw first.
  void parallel_apply(std::size_t n, const copy_function& f);

  /// The model itself.
  [[nodiscard]] const std::shared_ptr<torch::nn::Module>&
  module() const noexcept {
    return module_;
  }

  /// The copies of the last pass, for inspection; none before the first. Those
  /// that others hold when they are made anew, or this object ends, are plain
  /// modules from then on.
  [[nodiscard]] std::vector<std::shared_ptr<torch::nn::Module>> copies() const;

  /// Runs `child` from the next pass on: by the forward function that was
  /// given, or else by its own, if it is of the former one's type or a
  /// synchronized layer; another one's next pass throws `std::bad_cast`.
  void replace_child(const std::string& name,
                     const std::shared_ptr<torch::nn::Module>& child) override;

  /// Devices, where the output goes, dimension and the layers' synchronization;
  /// may be changed between passes. Other devices or another synchronization
  /// make the copies anew.
  DataParallelWithCallbackOptions options;

private:
  struct state;

  template <class ModuleType>
  static forward_function own_forward() {
    if constexpr (requires(ModuleType & m, const torch::Tensor& x) {
                    { m.forward(x) } -> std::convertible_to<torch::Tensor>;
                  })
      return [](torch::nn::Module& m, const torch::Tensor& x) -> torch::Tensor {
        return dynamic_cast<ModuleType&>(m).forward(x);
      };
    return {};
  }

  void prepare(std::size_t copies);

  caf::actor_system* system_;
  std::shared_ptr<torch::nn::Module> module_;
  forward_function forward_;
  /// Whether `forward_` calls that of the module's type: none was given.
  bool calls_own_forward_ = false;
  std::unique_ptr<state> state_;
};

TORCH_MODULE(DataParallelWithCallback);

} // namespace syncnorm::nn
