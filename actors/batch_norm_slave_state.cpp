// The state of a slave actor's copy, in messages.

#include "batch_norm_slave.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace syncnorm::detail {

namespace {

/// The arrays of the state and, as `weight.grad`, the gradients.
std::vector<named_array> all_arrays(batch_norm_replica& replica) {
  auto result = replica.state();
  for (auto& gradient : replica.gradients())
    result.push_back({gradient.name + ".grad", gradient.values});
  return result;
}

/// The names in `all_arrays` for a layer with those options: on a device,
/// asking for the arrays would wait for it.
std::vector<std::string_view> array_names(const batch_norm_options& options) {
  std::vector<std::string_view> result;
  if (options.affine)
    result = {"weight", "bias"};
  if (options.affine && !options.frozen)
    result.insert(result.end(), {"weight.grad", "bias.grad"});
  if (options.track_running_stats)
    result.insert(result.end(), {"running_mean",
                                 options.online ? "running_m2" : "running_var",
                                 "num_batches_tracked"});
  if (options.online)
    result.emplace_back("num_elements_tracked");
  return result;
}

/// Whether a float64 can be a counter of the state.
bool is_counter(double x) {
  return x >= 0 && x <= 0x1p53 && x == std::floor(x);
}

} // namespace

// -- state --------------------------------------------------------------------

caf::result<double_array>
batch_norm_slave::read_state(const std::string& name) {
  if (on_device())
    return read_from_device(name);
  for (const auto& x : all_arrays(*replica_))
    if (x.name == name)
      return std::visit(
          [](auto values) {
            return double_array{
                std::vector<double>(values.begin(), values.end())};
          },
          x.values);
  return no_such_array(name);
}

caf::result<void> batch_norm_slave::write_state(const std::string& name,
                                                const double_array& values) {
  if (on_device())
    return write_to_device(name, values);
  for (const auto& x : all_arrays(*replica_)) {
    if (x.name != name)
      continue;
    auto size = std::visit([](auto to) { return to.size(); }, x.values);
    if (values.size() != size)
      return wrong_size(name, size, values);
    if (std::holds_alternative<std::span<std::int64_t>>(x.values)
        && !std::ranges::all_of(values, is_counter))
      return no_counter(name, values);
    std::visit(
        [&]<class T>(std::span<T> to) {
          for (std::size_t i = 0; i < size; ++i)
            to[i] = static_cast<T>(values[i]);
        },
        x.values);
    return caf::unit;
  }
  return no_such_array(name);
}

caf::result<void> batch_norm_slave::forget(std::uint64_t pass_id) {
  if (kept_.erase(pass_id) != 0)
    return caf::unit;
  return make_error(errc::invalid_argument,
                    fmt::format("layer {}: forget: no pass has the id {}",
                                replica_->options().name, pass_id));
}

// -- state on a device --------------------------------------------------------

caf::result<double_array>
batch_norm_slave::read_from_device(const std::string& name) {
  try {
    if (auto copy = replica_->begin_read(name)) {
      auto promise = make_response_promise<double_array>();
      ends_->when_done(copy->work(), [this, promise, name,
                                      copy](const caf::error& reason) mutable {
        if (reason != caf::none)
          promise.deliver(reason);
        else
          promise.deliver(double_array{replica_->end_read(name, *copy)});
      });
      return promise;
    }
  } catch (const std::exception& x) {
    return to_answer(x);
  }
  if (auto counter = replica_->read_counter(name))
    return double_array{static_cast<double>(*counter)};
  return no_such_array(name);
}

caf::result<void>
batch_norm_slave::write_to_device(const std::string& name,
                                  const double_array& values) {
  try {
    if (replica_->read_counter(name)) {
      if (values.size() != 1)
        return wrong_size(name, 1, values);
      if (!is_counter(values[0]))
        return no_counter(name, values);
    }
    auto size = replica_->write_on_device(name, values.view());
    if (!size)
      return no_such_array(name);
    if (*size != values.size())
      return wrong_size(name, *size, values);
    // Answered behind the passes that may still take back what they learned.
    auto promise = make_response_promise<void>();
    when_done(nullptr, [promise](const caf::error& reason) mutable {
      if (reason != caf::none)
        promise.deliver(reason);
      else
        acknowledge(promise);
    });
    return promise;
  } catch (const std::exception& x) {
    return to_answer(x);
  }
}

// -- what is wrong with a request ---------------------------------------------

caf::error batch_norm_slave::no_such_array(const std::string& name) const {
  const auto& options = replica_->options();
  return make_error(errc::invalid_argument,
                    fmt::format("layer {}: name of an array: expected one of "
                                "[{}], got '{}'",
                                options.name,
                                fmt::join(array_names(options), ", "), name));
}

caf::error batch_norm_slave::wrong_size(const std::string& name,
                                        std::size_t size,
                                        const double_array& values) const {
  return make_error(errc::shape_mismatch,
                    fmt::format("layer {}: {}: expected {} elements, got {}",
                                replica_->options().name, name, size,
                                values.size()));
}

caf::error batch_norm_slave::no_counter(const std::string& name,
                                        const double_array& values) const {
  return make_error(errc::invalid_argument,
                    fmt::format("layer {}: {}: expected a whole number from 0 "
                                "to 2^53, got {}",
                                replica_->options().name, name, values[0]));
}

} // namespace syncnorm::detail
