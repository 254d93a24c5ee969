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
  /// One copy on each device; a device may be listed several times. Empty:
  /// every CUDA device, or the CPU once if there is none.
  TORCH_ARG(std::vector<torch::Device>, devices);

  /// The one device that the output goes to; unset: the first of `devices`.
  TORCH_ARG(std::optional<torch::Device>, output_device);

  /// The dimension along which input is split and output is joined.
  TORCH_ARG(std::int64_t, dim) = 0;

  /// Deadline, groups and names of the synchronized layers.
  TORCH_ARG(SynchronizeOptions, synchronize);
};

/// Runs copies of a model side by side, each on its own part of the batch and
/// its own thread, and synchronizes their synchronized layers: scatter,
/// replicate, replication callbacks, parallel apply, gather. One backward call
/// goes through the whole graph and adds up the gradients of all copies in the
/// model's parameters. Works on any mix of devices, CPU copies included. Each
/// copy on a CUDA device uses the caller's current stream on that device. Where
/// copies on CPUs and on CUDA devices mix, statistics go through the host, and
/// copies on CUDA devices wait for it.
///
/// Threads: each copy uses its share of libtorch's threads, at least one. Only
/// one thread may use the object at a time: a thread of your own or a detached
/// actor, not one of CAF's workers, because the object waits for actors. It
/// also waits while layers register: a minute for each at most, or forever if
/// no worker is free to run the actors.
///
/// The model may change between passes: parameters, buffers, training flags,
/// sub-modules, momentum and epsilon of synchronized layers. Other options and
/// plain members are copied only once; see `replica_set`. A pass makes the
/// copies anew, which takes longer, after parameters were frozen, after
/// parameters, buffers or sub-modules were registered or the memory of one was
/// replaced (`set_data`, which `to` and `load` call), and with another number
/// of inputs. Making copies, as the first pass does, takes numbers from
/// libtorch's global random generator. Where that matters, set its seed or
/// restore its state afterwards.
///
/// A forward pass may write to buffers (copy 0's are the model's own), but not
/// to parameters, whose memory is shared by copies on one device. A model with
/// sparse parameters or buffers is refused.
///
/// A forward pass cannot call backward or `autograd::grad` through a
/// synchronized layer: the graph belongs to all copies, and is complete only
/// when all copies have ended. Nor can a backward pass call such a layer again,
/// as checkpointing does: other copies would have to call it at the same time.
/// Both are refused. Copies synchronized by `synchronize`, each with its own
/// graph and thread, can do both. Tensor hooks may be registered anywhere.
///
/// Has no `clone()`: clone `module()` and make another object around the clone.
///
/// Errors: the caller gets the first exception that a copy throws. The other
/// copies stop at their next synchronized layer. The object works again
/// afterwards.
class DataParallelWithCallbackImpl : public torch::nn::Module,
                                     public ReplaceableChildren {
public:
  /// Runs a copy of the module on its input.
  using forward_function =
      std::function<torch::Tensor(torch::nn::Module&, const torch::Tensor&)>;

  /// Is called with a copy of the module, and the copy's number, from 0.
  using copy_function = std::function<void(torch::nn::Module&, std::size_t)>;

  /// @param system spawns the layers' masters; must outlive this object.
  /// @param module registered under the name "module"; a `ModuleHolder` or a
  ///               shared pointer to the module's own type; `clone()` must be
  ///               able to copy it. A module without a
  ///               `torch::Tensor forward(torch::Tensor)` is run by
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

  /// @param forward runs a copy of the module, or of what `convert_model` makes
  ///                of it; if null, `parallel_apply` with a function runs the
  ///                module, as above.
  DataParallelWithCallbackImpl(caf::actor_system& system,
                               std::shared_ptr<torch::nn::Module> module,
                               forward_function forward,
                               DataParallelWithCallbackOptions options = {});

  ~DataParallelWithCallbackImpl() override;

  /// Splits `input` among the copies, runs them and joins their outputs; see
  /// `scatter` and `gather`. A batch with fewer samples than copies runs on as
  /// many copies as it has samples.
  /// @throws error `invalid_argument` if `input` is undefined or has no
  ///         dimension `dim`; what `parallel_apply` throws.
  torch::Tensor forward(const torch::Tensor& input);

  /// Runs copy r on `inputs[r]`, unchanged, and returns the outputs. There may
  /// be fewer inputs than devices; batches may be unequal or empty. A model
  /// that writes to its input needs inputs that are not views of one tensor.
  /// @throws error `invalid_argument` for no inputs, for more inputs than
  ///         devices, or for a module without a forward function; what
  ///         `replica_set` throws for a module that it cannot copy; the first
  ///         exception that a copy threw.
  std::vector<torch::Tensor>
  parallel_apply(const std::vector<torch::Tensor>& inputs);

  /// Calls `f` with each of `n` copies at the same time; for models with
  /// several inputs or outputs, or with a loss on each device. `scatter` splits
  /// what the copies need and `gather` joins what they produce. Each call runs
  /// on its copy's thread and stream, with the caller's gradient mode and
  /// autocast settings. All copies must call the same synchronized layers in
  /// the same order.
  /// @throws error `invalid_argument` if `n` is not between 1 and the number of
  ///         devices; what `replica_set` throws for a module that it cannot
  ///         copy; the first exception that `f` threw.
  void parallel_apply(std::size_t n, const copy_function& f);

  /// The model itself.
  [[nodiscard]] const std::shared_ptr<torch::nn::Module>&
  module() const noexcept {
    return module_;
  }

  /// The copies of the last pass, for inspection; none before the first pass. A
  /// copy that others hold when copies are made anew, or this object ends, is a
  /// plain module from then on.
  [[nodiscard]] std::vector<std::shared_ptr<torch::nn::Module>> copies() const;

  /// Runs `child` from the next pass on: by the forward function that was
  /// given, else by the child's own if it is of the former module's type or a
  /// synchronized layer; with any other child, the next pass throws
  /// `std::bad_cast`.
  void replace_child(const std::string& name,
                     const std::shared_ptr<torch::nn::Module>& child) override;

  /// Devices, where the output goes, dimension and how layers are synchronized;
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
  /// Whether `forward_` calls the `forward` of the module's type: no function
  /// was given.
  bool calls_own_forward_ = false;
  std::unique_ptr<state> state_;
};

TORCH_MODULE(DataParallelWithCallback);

} // namespace syncnorm::nn
