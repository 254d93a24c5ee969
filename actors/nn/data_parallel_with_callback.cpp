#include "syncnorm/nn/data_parallel_with_callback.hpp"

#include "actors/nn/autocast_pass.hpp"
#include "actors/nn/forward_session.hpp"
#include "actors/nn/telling_others.hpp"
#include "actors/nn/torch_devices.hpp"
#include "actors/nn/worker_team.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/nn/detail/replication_scope.hpp"
#include "syncnorm/nn/module_traits.hpp"
#include "syncnorm/nn/replica_set.hpp"
#include "syncnorm/nn/scatter_gather.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <algorithm>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/StreamGuard.h>
#include <exception>
#include <fmt/format.h>
#include <optional>
#include <utility>

namespace syncnorm::nn {

namespace {

std::vector<torch::Device> default_devices() {
  std::vector<torch::Device> result;
  for (std::int32_t i = 0; i < detail::cuda_device_count(); ++i)
    result.emplace_back(torch::kCUDA, static_cast<torch::DeviceIndex>(i));
  if (result.empty())
    result.emplace_back(torch::kCPU);
  return result;
}

/// The same device, if it exists: a CUDA device with an index, the CPU without.
torch::Device require_device(const char* option, const torch::Device& where) {
  if (auto expected = detail::why_unusable(where))
    throw error{errc::device_unavailable,
                fmt::format("DataParallelWithCallback: {}: expected {}, got {}",
                            option, *expected, where.str())};
  if (where.is_cpu())
    return torch::kCPU;
  auto index = detail::to_device(where).index;
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

/// Adds devices if none are given, and indices to devices without one.
void complete(DataParallelWithCallbackOptions& options) {
  if (options.devices().empty())
    options.devices(default_devices());
  for (auto& where : options.devices())
    where = require_device("devices", where);
  if (auto& where = options.output_device())
    where = require_device("output_device", *where);
}

void require_copies(const char* argument, std::size_t got,
                    std::size_t devices) {
  if (got == 0 || got > devices)
    throw error{errc::invalid_argument,
                fmt::format("DataParallelWithCallback: {}: expected 1 to {}, "
                            "at most one for each device, got {}",
                            argument, devices, got)};
}

/// The stream that is current on each device when a pass begins.
std::vector<std::optional<c10::Stream>>
streams_of(const std::vector<torch::Device>& devices) {
  std::vector<std::optional<c10::Stream>> result;
  for (const auto& where : devices)
    result.emplace_back(detail::current_torch_stream(where));
  return result;
}

/// Each copy's thread gets its share of libtorch's threads, `all`; the number
/// is kept per thread.
void share_threads(detail::worker_team& team, int all) {
  auto share = std::max(1, all / static_cast<int>(team.size()));
  std::ignore = team.run(team.size(), [&](std::size_t) {
    // A thread that has not asked takes, when it first computes, the number
    // that was last set on any thread.
    std::ignore = at::get_num_threads();
    at::set_num_threads(share);
  });
  at::set_num_threads(all);
}

/// Gives the model what copy 0 has written to its buffers, even if the model is
/// on another device.
void hand_back_buffers(const torch::nn::Module& copy,
                       torch::nn::Module& model) {
  torch::NoGradGuard no_grad;
  auto written = copy.named_buffers();
  for (auto& entry : model.named_buffers())
    if (const auto* buffer = written.find(entry.key());
        buffer != nullptr && buffer->device() != entry.value().device())
      entry.value().copy_(*buffer);
}

std::string text_of(const std::exception_ptr& x) {
  try {
    std::rethrow_exception(x);
  } catch (const std::exception& e) {
    return detail::text_of(e);
  } catch (...) {
    return "an exception of unknown type";
  }
}

} // namespace

/// Copies, their seats and their threads, for as many copies as the last pass
/// had, and with its options.
struct DataParallelWithCallbackImpl::state {
  state(const std::shared_ptr<torch::nn::Module>& module,
        std::vector<torch::Device> devices, SynchronizeOptions with)
      : replicas{module, std::move(devices)},
        synchronize{std::move(with)},
        session{std::make_shared<detail::forward_session>(
            replicas.copies().size())},
        team{replicas.copies().size()} {}

  state(const state&) = delete;
  state& operator=(const state&) = delete;

  /// Copies that are still held are plain modules from here on.
  ~state() {
    try {
      release_replicas(replicas.copies());
    } catch (...) {
      // All were called; there is nobody to throw this to.
    }
  }

  /// Gives the copies their share of the threads that the caller has now.
  void share() {
    auto all = at::get_num_threads();
    if (std::exchange(threads, all) != all)
      share_threads(team, all);
  }

  replica_set replicas;
  SynchronizeOptions synchronize;
  std::shared_ptr<detail::forward_session> session;
  detail::worker_team team;
  /// The caller's number, of which the copies have shares; 0: not shared yet.
  int threads = 0;
  /// Whether the copies have their seats.
  bool seated = false;
};

DataParallelWithCallbackImpl::DataParallelWithCallbackImpl(
    caf::actor_system& system, std::shared_ptr<torch::nn::Module> module,
    forward_function forward, DataParallelWithCallbackOptions with)
    : torch::nn::Module{"syncnorm::nn::DataParallelWithCallback"},
      options{std::move(with)},
      system_{&system},
      module_{std::move(module)},
      forward_{std::move(forward)} {
  if (!module_)
    throw error{errc::invalid_argument,
                "DataParallelWithCallback: module: expected one, got null"};
  complete(options);
  register_module("module", module_);
}

DataParallelWithCallbackImpl::~DataParallelWithCallbackImpl() = default;

torch::Tensor
DataParallelWithCallbackImpl::forward(const torch::Tensor& input) {
  complete(options);
  auto devices = options.devices();
  auto output = options.output_device().value_or(devices.front());
  auto dim = options.dim();
  if (dim >= -input.dim() && dim < input.dim()) {
    auto samples = std::max<std::int64_t>(input.size(dim), 1);
    if (static_cast<std::size_t>(samples) < devices.size())
      devices.erase(devices.begin() + samples, devices.end());
  }
  return gather(parallel_apply(scatter(input, devices, dim)), output, dim);
}

std::vector<torch::Tensor> DataParallelWithCallbackImpl::parallel_apply(
    const std::vector<torch::Tensor>& inputs) {
  if (!forward_)
    throw error{errc::invalid_argument,
                fmt::format("DataParallelWithCallback: forward: expected a "
                            "module that makes one tensor of one, or "
                            "parallel_apply with a function, got {}",
                            module_->name())};
  complete(options);
  require_copies("inputs", inputs.size(), options.devices().size());
  std::vector<torch::Tensor> outputs(inputs.size());
  parallel_apply(inputs.size(), [&](torch::nn::Module& copy, std::size_t r) {
    outputs[r] = forward_(copy, inputs[r]);
  });
  return outputs;
}

void DataParallelWithCallbackImpl::parallel_apply(std::size_t n,
                                                  const copy_function& f) {
  complete(options);
  require_copies("n", n, options.devices().size());
  if (!f)
    throw error{errc::invalid_argument,
                "DataParallelWithCallback: f: expected a function, got null"};
  prepare(n);
  auto& session = *state_->session;
  const auto& copies = state_->replicas.copies();
  at::ThreadLocalState caller;
  auto autocast = detail::autocast_settings::current();
  auto streams = streams_of(state_->replicas.devices());
  session.begin();
  auto thrown = state_->team.run(n, [&](std::size_t r) {
    at::ThreadLocalStateGuard as_caller{caller};
    detail::autocast_pass pass{autocast};
    c10::OptionalStreamGuard on_stream;
    if (streams[r])
      on_stream.reset_stream(*streams[r]);
    try {
      f(*copies[r], r);
      session.leave(r, std::nullopt);
    } catch (...) {
      session.leave(r, text_of(std::current_exception()));
      throw;
    }
  });
  if (!session.failed()) {
    hand_back_buffers(*copies[0], *module_);
    return;
  }
  release_replicas(copies);
  session.forget_seats();
  state_->seated = false;
  std::rethrow_exception(
      thrown[static_cast<std::size_t>(session.first_failure())]);
}

/// Ensures that there are `n` copies like the model, with their seats.
void DataParallelWithCallbackImpl::prepare(std::size_t n) {
  auto devices = options.devices();
  devices.erase(devices.begin() + static_cast<std::ptrdiff_t>(n),
                devices.end());
  if (!state_ || state_->replicas.devices() != devices
      || state_->synchronize != options.synchronize()) {
    state_.reset();
    state_ = std::make_unique<state>(module_, std::move(devices),
                                     options.synchronize());
  }
  state_->share();
  auto& session = *state_->session;
  auto former = state_->replicas.copies();
  if (state_->replicas.refresh()) {
    session.forget_seats();
    state_->seated = false;
    release_replicas(former);
  }
  if (state_->seated)
    return;
  session.forget_seats();
  detail::replication_scope scope{*system_, state_->synchronize,
                                  detail::graph_kind::joint, state_->session};
  execute_replication_callbacks(state_->replicas.copies());
  state_->seated = true;
}

std::vector<std::shared_ptr<torch::nn::Module>>
DataParallelWithCallbackImpl::copies() const {
  return state_ ? state_->replicas.copies()
                : std::vector<std::shared_ptr<torch::nn::Module>>{};
}

void DataParallelWithCallbackImpl::replace_child(
    const std::string&, const std::shared_ptr<torch::nn::Module>& child) {
  module_ = child;
  if (calls_own_forward_
      && dynamic_cast<SynchronizedBatchNormBase*>(child.get()) != nullptr)
    forward_ = [](torch::nn::Module& m, const torch::Tensor& x) {
      return dynamic_cast<SynchronizedBatchNormBase&>(m).forward(x);
    };
  state_.reset();
}

} // namespace syncnorm::nn
