#include "trainer/model/engine.hpp"

#include "trainer/failure.hpp"
#include "trainer/input/batch.hpp"
#include "trainer/model/hash.hpp"
#include "trainer/model/network.hpp"
#include "trainer/model/rows.hpp"
#include "trainer/model/snapshot.hpp"

#include "syncnorm/nn/synchronize_apart.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/version.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace syncnorm::train {

namespace {

using torch::Tensor;

constexpr std::size_t evaluation_batch = 256;

std::int64_t signed_of(std::size_t x) {
  return static_cast<std::int64_t>(x);
}

torch::Device device_of(const device& where) {
  if (where.type == device_type::cpu)
    return torch::kCPU;
  auto gpus = engine::count_gpus();
  if (static_cast<std::size_t>(where.index) >= gpus)
    throw failure{fmt::format("--devices: {} is not there: libtorch sees {} "
                              "GPU{}",
                              to_string(where), gpus, gpus == 1 ? "" : "s")};
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(where.index)};
}

/// While this object lives, convolutions and linear layers of this thread
/// compute in bfloat16, from float32 weights.
class bf16_scope {
public:
  bf16_scope(bool on, const torch::Device& where) : on_{on} {
    if (!on_)
      return;
    at::autocast::increment_nesting();
    set_type(where.type(), torch::kBFloat16);
    enable(where.type(), true);
  }

  bf16_scope(const bf16_scope&) = delete;
  bf16_scope& operator=(const bf16_scope&) = delete;

  ~bf16_scope() {
    if (!on_)
      return;
    // Weights were cast once for the scope; they change after it.
    if (at::autocast::decrement_nesting() == 0)
      at::autocast::clear_cache();
    enable(torch::kCPU, false);
    enable(torch::kCUDA, false);
  }

private:
#if TORCH_VERSION_MAJOR > 2                                                    \
    || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  static void set_type(c10::DeviceType where, torch::ScalarType type) {
    at::autocast::set_autocast_dtype(where, type);
  }

  static void enable(c10::DeviceType where, bool on) {
    at::autocast::set_autocast_enabled(where, on);
  }
#else
  static void set_type(c10::DeviceType where, torch::ScalarType type) {
    where == torch::kCPU ? at::autocast::set_autocast_cpu_dtype(type)
                         : at::autocast::set_autocast_gpu_dtype(type);
  }

  static void enable(c10::DeviceType where, bool on) {
    where == torch::kCPU ? at::autocast::set_cpu_enabled(on)
                         : at::autocast::set_enabled(on);
  }
#endif

  bool on_;
};

bool is_norm(const torch::nn::Module& layer) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&layer)
         || dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&layer);
}

template <class T>
void descend_as(const sgd_settings& how, const Tensor& weights,
                const Tensor& velocity, const flat_array& gradient) {
  auto n = static_cast<std::size_t>(weights.numel());
  const auto& values = gradient.get<T>();
  if (values.size() != n)
    throw failure{fmt::format("gradient: expected {} values, found {}", n,
                              values.size())};
  sgd_step<T>(how, {weights.data_ptr<T>(), n}, {velocity.data_ptr<T>(), n},
              values.view());
}

} // namespace

struct engine::implementation {
  settings options;
  dataset_ptr data;
  torch::Device where;
  torch::ScalarType type;
  network_ptr model;
  /// All weights in one row, on the host, and the optimizer's state.
  Tensor weights;
  Tensor velocity;
  Tensor gradient;
  /// The statistics before the last forward pass in training.
  std::vector<Tensor> statistics;

  implementation(const settings& how, const device& device, dataset_ptr shared)
      : options{how},
        data{std::move(shared)},
        where{device_of(device)},
        type{weight_type(how.precision)},
        model{make_network(how.model, how.norm, data->training.shape)} {
    initialize(*model, how.seed);
    auto count = count_values(model->parameters());
    velocity = torch::zeros({count}, type);
    gradient = torch::zeros({count}, type);
    weights = torch::zeros({count}, type);
    move_model(*model, where, type);
    collect_weights();
  }

  void collect_weights() {
    collect(model->parameters(), weights);
  }

  void spread_weights() {
    spread(weights, model->parameters());
  }

  void collect_gradient() {
    for_each_place(model->parameters(), gradient,
                   [](const Tensor& x, const Tensor& place) {
                     if (x.grad().defined())
                       place.copy_(x.grad());
                     else
                       place.zero_();
                   });
  }

  void remember_statistics() {
    torch::NoGradGuard no_grad;
    auto buffers = model->buffers();
    statistics.resize(buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (statistics[i].defined())
        statistics[i].copy_(buffers[i]);
      else
        statistics[i] = buffers[i].clone();
  }

  void restore_statistics() {
    torch::NoGradGuard no_grad;
    auto buffers = model->buffers();
    for (std::size_t i = 0; i < statistics.size(); ++i)
      buffers[i].copy_(statistics[i]);
  }

  [[nodiscard]] nn::SynchronizeOptions synchronize_options() const {
    nn::SynchronizeOptions result;
    result.deadline = options.round_deadline();
    return result;
  }

  void set_training(bool on) {
    model->train(on);
    if (options.norm == norm_kind::frozen)
      for (auto& layer : model->modules(false))
        if (is_norm(*layer))
          layer->eval();
  }

  /// Normalized images, shape (N, C, H, W), and their labels, shape (N, 1).
  /// @param pick gives index and shift of the i-th of `count` samples.
  template <class Pick>
  std::pair<Tensor, Tensor> load(const labelled_images& from, std::size_t count,
                                 Pick pick) const {
    const auto& shape = from.shape;
    auto images =
        torch::empty({signed_of(count), signed_of(shape.channels),
                      signed_of(shape.height), signed_of(shape.width)},
                     torch::kFloat32);
    auto labels = torch::empty({signed_of(count), 1}, torch::kInt64);
    std::span pixels{images.data_ptr<float>(), count * shape.size()};
    for (std::size_t i = 0; i < count; ++i) {
      auto [sample, shift] = pick(i);
      normalize_image(*data, from, sample, shift,
                      pixels.subspan(i * shape.size(), shape.size()));
      labels.data_ptr<std::int64_t>()[i] = from.labels[sample];
    }
    return {images.to(where, type), labels.to(where)};
  }

  /// Shape (N, classes), in the type of the weights.
  Tensor log_probabilities(const Tensor& images) {
    bf16_scope scope{options.precision == precision_kind::bf16, where};
    return model->forward(images).to(type).log_softmax(1);
  }
};

engine::engine(const settings& options, const device& where, dataset_ptr data)
    : self_{std::make_unique<implementation>(options, where, std::move(data))} {
}

engine::engine(engine&& other) noexcept = default;

engine::~engine() = default;

void engine::prepare_thread() {
  at::set_num_threads(1);
}

std::size_t engine::count_gpus() {
  return torch::cuda::is_available()
             ? static_cast<std::size_t>(torch::cuda::device_count())
             : 0;
}

layer_masters engine::lead(caf::actor_system& system, std::size_t replicas) {
  if (self_->options.norm != norm_kind::sync)
    return {};
  return nn::lead_copies(system, self_->model, signed_of(replicas),
                         self_->synchronize_options());
}

void engine::follow(caf::actor_system& system, std::size_t index,
                    const layer_masters& masters) {
  if (self_->options.norm == norm_kind::sync)
    nn::follow_copies(system, self_->model, signed_of(index), masters);
}

std::uint64_t engine::fingerprint() const {
  return fingerprint_of(*self_->model);
}

std::size_t engine::size() const noexcept {
  return static_cast<std::size_t>(self_->weights.numel());
}

gradient_part engine::differentiate(std::span<const std::uint32_t> samples,
                                    std::size_t batch, std::uint64_t epoch) {
  gradient_part result;
  self_->remember_statistics();
  // Only a synchronized layer needs a replica without samples.
  if (samples.empty() && self_->options.norm != norm_kind::sync)
    return result;
  self_->set_training(true);
  self_->model->zero_grad();
  auto pick = [&](std::size_t i) {
    const auto& how = self_->options;
    return std::pair{samples[i],
                     shift_of(how.shift, how.seed, epoch, samples[i])};
  };
  auto [images, labels] =
      self_->load(self_->data->training, samples.size(), pick);
  auto loss = -self_->log_probabilities(images).gather(1, labels).sum()
              / static_cast<double>(batch);
  loss.backward();
  self_->collect_gradient();
  result.loss = loss.item<double>();
  result.gradient = to_flat(self_->gradient);
  return result;
}

void engine::roll_back() {
  self_->restore_statistics();
}

void engine::descend(const sgd_settings& how, const flat_array& gradient) {
  if (self_->type == torch::kFloat64)
    descend_as<double>(how, self_->weights, self_->velocity, gradient);
  else
    descend_as<float>(how, self_->weights, self_->velocity, gradient);
  self_->spread_weights();
}

evaluation engine::evaluate(std::size_t begin, std::size_t end) {
  torch::NoGradGuard no_grad;
  self_->set_training(false);
  evaluation result;
  for (auto at = begin; at < end; at += evaluation_batch) {
    auto n = std::min(evaluation_batch, end - at);
    auto pick = [at](std::size_t i) {
      return std::pair{at + i, image_shift{}};
    };
    auto [images, labels] = self_->load(self_->data->held_out, n, pick);
    auto scores = self_->log_probabilities(images);
    auto hits = scores.argmax(1, true).eq(labels).sum();
    result.samples += n;
    result.correct += static_cast<std::uint64_t>(hits.item<std::int64_t>());
    result.loss -= scores.gather(1, labels).sum().item<double>();
  }
  return result;
}

std::uint64_t engine::hash() const {
  auto tensors = self_->model->parameters();
  if (self_->options.norm != norm_kind::local)
    for (const auto& x : self_->model->buffers())
      tensors.push_back(x);
  tensors.push_back(self_->velocity);
  return hash_of(tensors);
}

model_state engine::state() const {
  return snapshot_of(*self_->model, self_->velocity);
}

void engine::assume(const model_state& state) {
  restore(state, *self_->model, self_->velocity);
  self_->collect_weights();
}

void engine::give_up(const std::string& why) noexcept {
  try {
    nn::give_up(*self_->model, why);
  } catch (const std::exception&) {
    // The others find out by their deadline.
  }
}

} // namespace syncnorm::train
