// The state of a replica on a device, seen from the host.

#include "syncnorm/batch_norm_replica.hpp"
#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace syncnorm {

using detail::device_share;

namespace {

using named_arrays = std::vector<named_array>;

/// Elements of the array of that name, 0 if there is none.
std::size_t size_in(const named_arrays& arrays, const std::string& name) {
  for (const auto& x : arrays)
    if (x.name == name)
      return std::visit([](auto values) { return values.size(); }, x.values);
  return 0;
}

void require_same_arrays(const std::string& layer, const named_arrays& mine,
                         const named_arrays& theirs, const char* suffix) {
  for (const auto* arrays : {&mine, &theirs})
    for (const auto& x : *arrays) {
      auto expected = size_in(mine, x.name);
      auto got = size_in(theirs, x.name);
      if (expected != got)
        throw error{errc::shape_mismatch,
                    fmt::format("layer {}: assign_state: {}{}: expected {} "
                                "elements, got {}",
                                layer, x.name, suffix, expected, got)};
    }
}

void copy_values(const named_arrays& from, const named_arrays& to) {
  for (std::size_t i = 0; i < to.size(); ++i)
    std::visit(
        [](auto x, auto y) {
          for (std::size_t j = 0; j < y.size(); ++j)
            y[j] = static_cast<typename decltype(y)::value_type>(x[j]);
        },
        from[i].values, to[i].values);
}

} // namespace

/// Where a named array lies.
struct batch_norm_replica::device_place {
  device_share::slot slot;
  std::size_t first;
};

std::optional<batch_norm_replica::device_place>
batch_norm_replica::find_on_device(const std::string& name) const {
  struct entry {
    const char* name;
    const channel_array& host;
    device_place place;
  };
  const std::array entries{
      entry{"weight", weight_, {device_share::weight, 0}},
      entry{"bias", bias_, {device_share::bias, 0}},
      entry{"running_mean", running_mean_, {device_share::running, 0}},
      entry{"running_var", running_var_, {device_share::running, channels()}},
      entry{"running_m2", running_m2_, {device_share::running, channels()}},
      entry{
          "weight.grad", weight_gradient_, {device_share::weight_gradient, 0}},
      entry{"bias.grad", bias_gradient_, {device_share::bias_gradient, 0}}};
  for (const auto& x : entries)
    if (device_ && x.name == name && !x.host.empty())
      return x.place;
  return std::nullopt;
}

std::int64_t batch_norm_replica::*
batch_norm_replica::find_counter(const std::string& name) const noexcept {
  if (name == "num_batches_tracked" && options_.track_running_stats)
    return &batch_norm_replica::num_batches_tracked_;
  if (name == "num_elements_tracked" && options_.online)
    return &batch_norm_replica::num_elements_tracked_;
  return nullptr;
}

std::optional<std::int64_t>
batch_norm_replica::read_counter(const std::string& name) const {
  auto counter = find_counter(name);
  return counter != nullptr ? std::optional{this->*counter} : std::nullopt;
}

void batch_norm_replica::bring_to_device() {
  if (!device_ || !std::exchange(host_is_newer_, false))
    return;
  auto running = running_mean_.widened();
  spread().append_to(running);
  device_->write(device_share::weight, weight_.widened());
  device_->write(device_share::bias, bias_.widened());
  device_->write(device_share::running, running);
  device_->write(device_share::weight_gradient, weight_gradient_.widened());
  device_->write(device_share::bias_gradient, bias_gradient_.widened());
}

void batch_norm_replica::bring_to_host() {
  if (!device_ || !device_is_newer_)
    return;
  std::array<device_array, device_share::slots> arrays;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    arrays[i] = device_->array(device_share::slot(i));
  detail::host_copy copy{stream(), arrays};
  copy.work().end.synchronize();
  weight_.assign(copy.read(device_share::weight));
  bias_.assign(copy.read(device_share::bias));
  auto running = copy.read(device_share::running);
  running_mean_.assign(std::span{running}.first(running_mean_.size()));
  spread().assign(std::span{running}.last(spread().size()));
  auto assign_gradient = [&](channel_array& to, device_share::slot from) {
    auto values = copy.read(from);
    values.resize(to.size());
    to.assign(values);
  };
  assign_gradient(weight_gradient_, device_share::weight_gradient);
  assign_gradient(bias_gradient_, device_share::bias_gradient);
  device_is_newer_ = false;
}

void batch_norm_replica::assign_state(const batch_norm_replica& other) {
  if (options_.online != other.options_.online)
    throw error{errc::shape_mismatch,
                fmt::format("layer {}: assign_state: expected the state of a "
                            "layer with online = {}, got online = {}",
                            options_.name, options_.online,
                            other.options_.online)};
  auto source = other;
  auto their_state = source.state();
  auto their_gradients = source.gradients();
  auto my_state = state();
  auto my_gradients = gradients();
  require_same_arrays(options_.name, my_state, their_state, "");
  require_same_arrays(options_.name, my_gradients, their_gradients, ".grad");
  // Equal names are in the same order.
  copy_values(their_state, my_state);
  copy_values(their_gradients, my_gradients);
  training_ = other.training_;
}

std::optional<detail::host_copy>
batch_norm_replica::begin_read(const std::string& name) {
  auto place = find_on_device(name);
  if (!place)
    return std::nullopt;
  bring_to_device();
  std::array arrays{device_->array(place->slot)};
  return detail::host_copy{stream(), arrays};
}

std::vector<double>
batch_norm_replica::end_read(const std::string& name,
                             const detail::host_copy& copy) const {
  auto values = copy.read(0);
  std::vector<double> result(channels());
  // A gradient of zero has no array.
  if (auto place = find_on_device(name); place && !values.empty())
    std::copy_n(values.begin() + std::ptrdiff_t(place->first), result.size(),
                result.begin());
  return result;
}

std::optional<std::size_t>
batch_norm_replica::write_on_device(const std::string& name,
                                    std::span<const double> values) {
  if (auto counter = find_counter(name)) {
    if (values.size() == 1)
      this->*counter = static_cast<std::int64_t>(values[0]);
    return 1;
  }
  auto place = find_on_device(name);
  if (!place)
    return std::nullopt;
  if (values.size() != channels())
    return channels();
  bring_to_device();
  device_is_newer_ = true;
  if (place->slot == device_share::running)
    device_->write_part(place->slot, place->first, values);
  else
    device_->write(place->slot, values);
  return channels();
}

// -- what was learned ---------------------------------------------------------

detail::learned_statistics batch_norm_replica::learned() {
  bring_to_device();
  return {device_->array(device_share::running),
          device_->array(device_share::weight_gradient),
          device_->array(device_share::bias_gradient), num_batches_tracked_,
          num_elements_tracked_};
}

void batch_norm_replica::unlearn(const detail::learned_statistics& since) {
  device_->restore(device_share::running, since.running);
  device_->restore(device_share::weight_gradient, since.weight_gradient);
  device_->restore(device_share::bias_gradient, since.bias_gradient);
  num_batches_tracked_ = since.num_batches_tracked;
  num_elements_tracked_ = since.num_elements_tracked;
  host_is_newer_ = false;
  device_is_newer_ = true;
}

} // namespace syncnorm
