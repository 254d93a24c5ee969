#include "syncnorm/detail/device_share.hpp"

#include "round_arguments.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace syncnorm::detail {

namespace {

/// The arrays of a pass while the stream reads them: on their own stream there
/// is nothing to order, on another one the memory must outlive the kernels.
struct readings {
  device_reading tape;
  device_reading weight;
  device_reading bias;
  channel_parameters parameters;

  readings(const device_share& share, const device_array& tape_array,
           std::int64_t channels)
      : tape{tape_array.read_on(share.stream())},
        weight{share.array(device_share::weight).read_on(share.stream())},
        bias{share.array(device_share::bias).read_on(share.stream())},
        parameters{tape.data(), tape.at(static_cast<std::size_t>(channels)),
                   weight.data(), bias.data()} {}
};

} // namespace

device_share::device_share(const batch_norm_options& options,
                           device_stream stream)
    : stream_{std::move(stream)},
      type_{statistics_type(options.type)},
      moments_type_{options.online ? dtype::float64 : type_},
      channels_{options.channels},
      eps_{options.eps},
      mode_{options.mode},
      has_gradients_{options.affine && !options.frozen} {}

void device_share::write(slot which, std::span<const double> values) {
  arrays_[which] = values.empty()
                       ? device_array{}
                       : uploads_.upload(stream_, type_of(which), values);
}

void device_share::write_part(slot which, std::size_t first,
                              std::span<const double> values) {
  auto part = uploads_.upload(stream_, type_of(which), values);
  device_array result{stream_, type_of(which), arrays_[which].size()};
  auto before = arrays_[which].read_on(stream_);
  const auto& where = stream_.where();
  runtime().copy(stream_.run(), result.data(), where, before.data(), where,
                 result.bytes());
  runtime().copy(stream_.run(), result.at(first), where, part.data(), where,
                 part.bytes());
  result.publish();
  arrays_[which] = std::move(result);
}

workspace kernel_scratch::take(const device_stream& stream, std::size_t bytes) {
  constexpr auto width = sizeof(double);
  if (memory_.bytes() < bytes)
    memory_ = {stream, dtype::float64, (bytes + width - 1) / width};
  return {memory_.data(), memory_.bytes()};
}

// -- forward ------------------------------------------------------------------

device_array device_share::moments(std::span<const const_tensor_view> xs,
                                   batch_norm_message& message) {
  auto half = static_cast<std::size_t>(channels_);
  device_array result{stream_, moments_type_, 2 * half * xs.size()};
  for (std::size_t i = 0; i < xs.size(); ++i) {
    auto* mean = result.at(2 * half * i);
    moments_view out{0,         mean,          result.at(2 * half * i + half),
                     channels_, moments_type_, stream_.where()};
    auto bytes = runtime().batch_moments_workspace(xs[i].layout());
    runtime().batch_moments(stream_.run(), xs[i], out, scratch(bytes));
    count_of(message, i) = out.count;
  }
  result.publish();
  return result;
}

device_array device_share::receive(const channel_payload& values) {
  if (values.on_device())
    return rounded(values.array().on_device_of(stream_));
  return uploads_.upload(stream_, type_, values.view());
}

device_array device_share::rounded(const device_array& x) const {
  if (x.type() == type_)
    return x;
  auto result = make(x.size());
  auto from = x.read_on(stream_);
  runtime().round_array(stream_.run(), static_cast<const double*>(from.data()),
                        static_cast<std::int64_t>(x.size()),
                        static_cast<float*>(result.data()));
  result.publish();
  return result;
}

device_array device_share::running_tape(std::int64_t count) {
  auto half = static_cast<std::size_t>(channels_);
  auto seen = arrays_[running];
  if (count == 0) {
    std::vector<double> unseen(2 * half, 0);
    std::fill_n(unseen.begin() + std::ptrdiff_t(half), half, 1.0);
    seen = uploads_.upload(stream_, moments_type_, unseen);
    count = 1;
  }
  device_array result{stream_, moments_type_, 2 * half};
  auto from = seen.read_on(stream_);
  runtime().finalize_moments(stream_.run(),
                             {count, from.data(), from.at(half), channels_,
                              moments_type_, stream_.where()},
                             {eps_, mode_, 0}, result.data(), result.at(half),
                             {});
  result.publish();
  return rounded(result);
}

void device_share::normalize(const const_tensor_view& x,
                             const device_array& tape, const tensor_view& y) {
  readings in{*this, tape, channels_};
  runtime().normalize(stream_.run(), x, in.parameters, y);
}

void device_share::take_over(const channel_payload& values) {
  arrays_[running] =
      values.on_device()
          ? values.array().on_device_of(stream_)
          : uploads_.upload(stream_, moments_type_, values.view());
}

// -- backward -----------------------------------------------------------------

device_array device_share::sums(const const_tensor_view& x,
                                const const_tensor_view& dy,
                                const device_array& tape) {
  auto half = static_cast<std::size_t>(channels_);
  auto result = make(2 * half);
  if (has_gradients_) {
    pending_weight_ = make(half);
    pending_bias_ = make(half);
  }
  readings in{*this, tape, channels_};
  auto bytes = runtime().backward_reduce_workspace(x.layout());
  runtime().backward_reduce(stream_.run(), dy, x, in.parameters,
                            {result.data(), result.at(half),
                             pending_weight_.data(), pending_bias_.data()},
                            scratch(bytes));
  if (mode_ == eps_mode::clamp)
    runtime().clear_clamped(stream_.run(), in.tape.at(half), eps_, channels_,
                            type_, result.at(half));
  result.publish();
  return result;
}

void device_share::input_gradient(const const_tensor_view& x,
                                  const const_tensor_view& dy,
                                  const device_array& tape,
                                  const device_array& totals,
                                  std::int64_t count, const tensor_view& dx) {
  readings in{*this, tape, channels_};
  auto sums = totals.read_on(stream_);
  auto half = static_cast<std::size_t>(channels_);
  runtime().backward_input(stream_.run(), dy, x, in.parameters,
                           {sums.data(), sums.at(half), count}, dx);
}

void device_share::add_gradients() {
  add_gradient(weight_gradient, pending_weight_);
  add_gradient(bias_gradient, pending_bias_);
}

void device_share::add_gradient(slot which, device_array& pending) {
  if (pending.size() == 0)
    return;
  auto result = make(pending.size());
  auto before = arrays_[which].read_on(stream_);
  std::array<const void*, 2> parts{before.data(), pending.data()};
  runtime().add_arrays(stream_.run(), parts, channels_, type_, result.data());
  result.publish();
  arrays_[which] = std::move(result);
  pending = {};
}

} // namespace syncnorm::detail
