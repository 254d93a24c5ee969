#include "round_arguments.hpp"

#include "syncnorm/error.hpp"
#include "syncnorm/tensor_view.hpp"

#include <fmt/format.h>

#include <limits>
#include <string>

namespace syncnorm::detail {

namespace {

[[noreturn]] void refuse(errc code, std::int64_t identifier,
                         const std::string& text) {
  throw error{code, fmt::format("replica {} sent {}", identifier, text)};
}

[[noreturn]] void refuse(errc code, const round_message& x,
                         const std::string& text) {
  refuse(code, x.identifier, text);
}

/// Whether two copies' rounds do the same.
bool same_options(const statistics_update& a, const statistics_update& b) {
  return a.eps.bits == b.eps.bits && a.mode.code == b.mode.code
         && a.momentum.bits == b.momentum.bits && a.cumulative == b.cumulative
         && a.online == b.online;
}

std::string options_text(const statistics_update& x) {
  auto momentum = fmt::format("{}", double{x.momentum});
  return fmt::format("eps={}, mode={}, momentum={}, online={}", double{x.eps},
                     x.mode == eps_mode::plus ? "plus" : "clamp",
                     x.cumulative ? "none" : momentum, x.online);
}

/// Online statistics are float64, whatever the tensors' type.
void require_known_type(const round_message& x, dtype type) {
  const auto& m = x.message;
  if (m.update.online && type != dtype::float64)
    refuse(errc::dtype_mismatch, x,
           fmt::format("online statistics of {} on a device, expected float64",
                       to_string(type)));
  if (!m.update.online && type != statistics_type(m.type))
    refuse(errc::dtype_mismatch, x,
           fmt::format("statistics of {} on a device for a {} tensor",
                       to_string(type), to_string(m.type)));
}

} // namespace

void require_known(const round_message& x) {
  const auto& m = x.message;
  if (m.mode.code > static_cast<std::uint8_t>(round_mode::backward))
    refuse(errc::malformed_message, x, fmt::format("mode {}", m.mode.code));
  if (m.type.code > static_cast<std::uint8_t>(dtype::bfloat16))
    refuse(errc::malformed_message, x, fmt::format("dtype {}", m.type.code));
  if (m.update.mode.code > static_cast<std::uint8_t>(eps_mode::clamp))
    refuse(errc::malformed_message, x,
           fmt::format("eps mode {}", m.update.mode.code));
  if (m.channels < 1 || std::uint64_t(m.channels) > double_array::max_size / 2)
    refuse(errc::malformed_message, x, fmt::format("{} channels", m.channels));
  for (std::size_t i = 0; i < batches_of(m); ++i)
    if (count_of(m, i) < 0)
      refuse(errc::malformed_message, x,
             fmt::format("a count of {} elements", count_of(m, i)));
  if (m.values.on_device())
    require_known_type(x, m.values.array().type());
  if (m.resend)
    return;
  auto expected = 2 * std::size_t(m.channels) * batches_of(m);
  auto nothing = m.values.size() == 0 && m.count == 0 && m.later_counts.empty();
  if (m.values.size() != expected && !nothing)
    refuse(errc::malformed_message, x,
           fmt::format("{} values for {} channels in {} batches, expected {}",
                       m.values.size(), m.channels, batches_of(m), expected));
  if (!m.later_counts.empty() && m.mode != round_mode::forward)
    refuse(errc::invalid_argument, x,
           fmt::format("{} batches in one message; only forward passes can "
                       "share one",
                       batches_of(m)));
}

void require_agreement(const round_message& owner, const round_message& x) {
  const auto& a = owner.message;
  const auto& b = x.message;
  if (a.mode != b.mode)
    refuse(errc::invalid_argument, x,
           fmt::format("a {} message, replica {} a {} message; all replicas "
                       "must make the same calls in the same order",
                       to_string(b.mode), owner.identifier, to_string(a.mode)));
  if (a.pass != b.pass)
    refuse(errc::invalid_argument, x,
           fmt::format("sums of call {} of the layer, replica {} of call {}; "
                       "all replicas must pass backward through their calls in "
                       "the same order",
                       b.pass, owner.identifier, a.pass));
  if (a.channels != b.channels)
    refuse(errc::shape_mismatch, x,
           fmt::format("{} channels, replica {} {} channels", b.channels,
                       owner.identifier, a.channels));
  if (a.type != b.type)
    refuse(errc::dtype_mismatch, x,
           fmt::format("{}, replica {} {}", to_string(b.type), owner.identifier,
                       to_string(a.type)));
  if (a.resend || b.resend)
    return;
  if (!same_options(a.update, b.update))
    refuse(
        errc::invalid_argument, x,
        fmt::format("{}, replica {} {}; copies of a layer must have the same "
                    "options",
                    options_text(b.update), owner.identifier,
                    options_text(a.update)));
  if (a.later_counts.size() != b.later_counts.size())
    refuse(errc::invalid_argument, x,
           fmt::format("{} batches in one message, replica {} {}; all replicas "
                       "must be asked for the same ones together",
                       batches_of(b), owner.identifier, batches_of(a)));
}

void require_update(std::int64_t owner, const batch_norm_message& total) {
  const auto& update = total.update;
  auto expected = 2 * std::size_t(total.channels);
  if (update.running.size() != 0 && update.running.size() != expected)
    refuse(errc::malformed_message, owner,
           fmt::format("{} running statistics, expected {} or none",
                       update.running.size(), expected));
  if (update.running.size() != 0
      && update.running.on_device() != total.values.on_device()
      && total.values.size() != 0)
    refuse(errc::device_mismatch, owner,
           "running statistics and values in memory of different devices");
  if (update.running.on_device() && total.values.on_device()
      && update.running.array().type() != total.values.array().type())
    refuse(errc::dtype_mismatch, owner,
           fmt::format("running statistics of {} and values of {}",
                       to_string(update.running.array().type()),
                       to_string(total.values.array().type())));
  if (update.online && update.running.size() != expected)
    refuse(errc::malformed_message, owner,
           fmt::format("{} online statistics, expected {}",
                       update.running.size(), expected));
}

void require_counters(std::int64_t owner, const statistics_update& update,
                      std::int64_t batch) {
  if (auto problem = counter_problem(update, batch); !problem.empty())
    refuse(errc::malformed_message, owner, problem);
}

std::string counter_problem(const statistics_update& seen, std::int64_t batch) {
  auto limit = std::numeric_limits<std::int64_t>::max();
  if (seen.num_batches_tracked < 0 || seen.num_batches_tracked == limit)
    return fmt::format("num_batches_tracked {}, expected 0 to {}",
                       seen.num_batches_tracked, limit - 1);
  if (seen.num_elements_tracked < 0
      || seen.num_elements_tracked > limit - batch)
    return fmt::format("num_elements_tracked {}, expected 0 to {} before {} "
                       "more",
                       seen.num_elements_tracked, limit - batch, batch);
  return {};
}

std::int64_t total_count(std::span<const round_message> messages,
                         std::size_t batch) {
  auto limit = std::numeric_limits<std::int64_t>::max();
  std::int64_t total = 0;
  for (const auto& x : messages) {
    auto count = count_of(x.message, batch);
    // No replica is named: behind a relay, a message is that of several.
    if (count > limit - total)
      throw error{errc::malformed_message,
                  fmt::format("the replicas' counts are more than {} "
                              "elements, too many in all",
                              limit)};
    total += count;
  }
  return total;
}

} // namespace syncnorm::detail
