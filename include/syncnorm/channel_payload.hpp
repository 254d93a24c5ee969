#pragma once

#include "syncnorm/device_array.hpp"
#include "syncnorm/shared_array.hpp"

#include <cstddef>
#include <utility>

namespace syncnorm {

/// Statistics of channels in a message: a `double_array` in host memory, or,
/// inside one process, an array on a device with its ready-event. An array on a
/// device is not serialized: on another node it arrives empty. So it is copied
/// to the host first, as participants do if their master is on another node.
///
/// The values of a device are in `array` alone: `view`, `data`, `begin` and
/// `end` are then empty, and `[]` must not be used.
class channel_payload : public double_array {
public:
  using double_array::double_array;

  /// Nothing.
  channel_payload() = default;

  /// In host memory.
  channel_payload(double_array values) : double_array{std::move(values)} {}

  /// On a device, published.
  channel_payload(device_array values) : device_{std::move(values)} {}

  /// Whether the values lie on a device.
  [[nodiscard]] bool on_device() const noexcept {
    return device_.data() != nullptr;
  }

  /// The array, if it is on a device; float32 or float64.
  [[nodiscard]] const device_array& array() const noexcept {
    return device_;
  }

  /// Number of elements, wherever they are.
  [[nodiscard]] std::size_t size() const noexcept {
    return on_device() ? device_.size() : double_array::size();
  }

  /// In host memory, compares the arrays; on a device, whether both are the
  /// same array.
  friend bool operator==(const channel_payload& x, const channel_payload& y) {
    if (x.on_device() || y.on_device())
      return x.device_.data() == y.device_.data() && x.size() == y.size();
    return static_cast<const double_array&>(x)
           == static_cast<const double_array&>(y);
  }

  /// Values on a device equal none in host memory.
  friend bool operator==(const channel_payload& x, const double_array& y) {
    return x == channel_payload{y};
  }

  // -- serialization ----------------------------------------------------------

  /// Writes what travels to another node; values on a device do not.
  template <class Sink>
  bool save(Sink& f) const {
    return on_device() ? double_array{}.save(f) : double_array::save(f);
  }

  /// Reads what `save` has written. Returns false for anything else.
  template <class Source>
  bool load(Source& f) {
    device_ = {};
    return double_array::load(f);
  }

  template <class Inspector>
  friend auto inspect(Inspector& f, channel_payload& x) {
    return detail::inspect_raw(f, x, "syncnorm::channel_payload");
  }

private:
  device_array device_;
};

} // namespace syncnorm
