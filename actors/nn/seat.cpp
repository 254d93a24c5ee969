// The edge to CAF.

#include "actors/nn/seat.hpp"

#include "actors/nn/distant_copies.hpp"
#include "actors/nn/forward_session.hpp"
#include "syncnorm/batch_norm_participant.hpp"
#include "syncnorm/detail/host_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>
#include <utility>

namespace syncnorm::nn::detail {

namespace {

/// On which CUDA device each copy of a group was in the last forward round, or
/// -1. A copy writes before it sends, and reads when all have sent.
class device_table {
public:
  explicit device_table(std::size_t copies) : of_copy_(copies) {
    for (auto& x : of_copy_)
      x.store(-1);
  }

  void set(std::size_t copy, std::int32_t index) noexcept {
    of_copy_[copy].store(index);
  }

  [[nodiscard]] std::optional<std::string> shared() const {
    for (std::size_t i = 0; i < of_copy_.size(); ++i)
      for (std::size_t k = i + 1; k < of_copy_.size(); ++k)
        if (auto index = of_copy_[i].load();
            index >= 0 && index == of_copy_[k].load())
          return fmt::format("copies {} and {} on cuda:{}", i, k, index);
    return std::nullopt;
  }

private:
  std::vector<std::atomic<std::int32_t>> of_copy_;
};

/// The copies [first, last) of a layer that exchange messages.
struct layer_group {
  std::int64_t first = 0;
  std::int64_t last = 0;
  batch_norm_master_actor master;
  /// Where its copies register, if they are all in this process.
  std::shared_ptr<batch_norm_relays> relays;
  std::shared_ptr<device_table> devices;
  layer_calls_ptr calls;
  std::shared_ptr<joint_rounds> joint;
};

/// What copy 0 publishes in the context: the groups, of which each group's
/// first copy makes its own.
using layer_groups = std::shared_ptr<std::vector<layer_group>>;

std::vector<layer_group> divide(std::int64_t copies, std::int64_t size) {
  std::vector<layer_group> result;
  auto step = size == 0 ? copies : size;
  for (std::int64_t first = 0; first < copies; first += step) {
    auto& group = result.emplace_back();
    group.first = first;
    group.last = std::min(first + step, copies);
  }
  return result;
}

channel_payload to_payload(std::vector<double>&& in_host_memory,
                           device_array&& on_device) {
  if (on_device.data() != nullptr)
    return std::move(on_device);
  return double_array{std::move(in_host_memory)};
}

batch_norm_message to_message(round_request&& x) {
  batch_norm_message result;
  result.mode = x.backward ? round_mode::backward : round_mode::forward;
  result.type = x.type;
  result.channels = x.channels;
  result.count = x.count;
  result.call = x.call;
  result.values = to_payload(std::move(x.values), std::move(x.device_values));
  result.update.eps = x.eps;
  result.update.mode = x.mode;
  result.update.momentum = x.momentum;
  result.update.cumulative = x.cumulative;
  result.update.running =
      to_payload(std::move(x.running), std::move(x.device_running));
  result.update.num_batches_tracked = x.num_batches_tracked;
  return result;
}

/// Brings replies to where the requests of a copy were.
class reply_reader {
public:
  round_reply read(const batch_norm_reply& x, const device_array& like) {
    round_reply result;
    result.count = x.count;
    result.num_batches_tracked = x.num_batches_tracked;
    if (like.data() != nullptr) {
      result.device_values = to_device(x.values, like);
      result.device_running = to_device(x.running, like);
    } else {
      result.values.assign(x.values.begin(), x.values.end());
      result.running.assign(x.running.begin(), x.running.end());
    }
    return result;
  }

private:
  device_array to_device(const channel_payload& x, const device_array& like) {
    if (x.on_device())
      return x.array().on_device_of(like.stream());
    if (x.size() == 0)
      return {};
    return uploads_.upload(like.stream(), like.type(), x.view());
  }

  syncnorm::detail::upload_memory uploads_;
};

class layer_seat final : public participant {
public:
  layer_seat(batch_norm_participant taking_part, std::string layer,
             std::int64_t copy_id, std::shared_ptr<forward_session> session,
             const layer_group& group)
      : relays_{taking_part.copy_id() == 0 ? group.relays : nullptr},
        taking_part_{std::move(taking_part)},
        layer_{std::move(layer)},
        copy_id_{copy_id},
        session_{std::move(session)},
        calls_{group.calls},
        devices_{group.devices},
        joint_{group.joint} {}

  void require_pass() const override {
    if (session_)
      session_->require_pass(*calls_, static_cast<std::size_t>(copy_id_));
  }

  void begin(round_request request) override {
    if (session_)
      session_->enter(*calls_, static_cast<std::size_t>(copy_id_));
    if (busy_.exchange(true, std::memory_order_acquire))
      throw error{errc::invalid_argument,
                  fmt::format("copy {} begins a round before it has the reply "
                              "of the last one: one thread uses a copy at a "
                              "time, and calls of a layer on a device must "
                              "depend on each other",
                              copy_id_)};
    ++rounds_;
    auto like = request.device_values;
    if (devices_ && !request.backward)
      devices_->set(static_cast<std::size_t>(taking_part_.copy_id()),
                    like.data() != nullptr ? like.stream().where().index : -1);
    try {
      taking_part_.begin(to_message(std::move(request)));
    } catch (...) {
      busy_.store(false, std::memory_order_release);
      throw;
    }
    like_ = std::move(like);
  }

  round_reply end() override {
    try {
      auto result = replies_.read(await_reply(), std::exchange(like_, {}));
      busy_.store(false, std::memory_order_release);
      return result;
    } catch (...) {
      busy_.store(false, std::memory_order_release);
      throw;
    }
  }

  void give_up(const std::string& why) noexcept override {
    try {
      taking_part_.give_up(why);
    } catch (...) {
      // The master is gone: then the others know.
    }
  }

  void layer_failed(const std::string& why) noexcept override {
    // The session must know of this failure before it can cause others.
    if (!session_)
      give_up(why);
  }

  [[nodiscard]] std::int64_t copy_id() const noexcept override {
    return taking_part_.copy_id();
  }

  [[nodiscard]] std::uint64_t messages_sent() const noexcept override {
    return taking_part_.messages_sent();
  }

  [[nodiscard]] std::uint64_t rounds() const noexcept override {
    return rounds_;
  }

  [[nodiscard]] std::optional<std::string> shared_device() const override {
    return devices_ ? devices_->shared() : std::nullopt;
  }

  [[nodiscard]] joint_rounds* joint() const noexcept override {
    return joint_.get();
  }

  [[nodiscard]] std::shared_ptr<const std::atomic<bool>>
  pass_is_over() const override {
    return session_ ? session_->is_over() : nullptr;
  }

private:
  batch_norm_reply await_reply() {
    try {
      return taking_part_.end();
    } catch (const error& x) {
      std::string_view text{x.what()};
      if (text.starts_with("layer "))
        throw;
      // A master that has not answered has not said whose it is.
      throw error{x.code(),
                  fmt::format("layer {}, round {}: {}", layer_, rounds_, text)};
    }
  }

  /// The first copy's: they end after the master, which it holds.
  std::shared_ptr<batch_norm_relays> relays_;
  batch_norm_participant taking_part_;
  std::string layer_;
  reply_reader replies_;
  /// Names where the outstanding reply shall be.
  device_array like_;
  std::uint64_t rounds_ = 0;
  /// Between `begin` and `end`, which may be on different threads.
  std::atomic<bool> busy_ = false;
  std::int64_t copy_id_;
  std::shared_ptr<forward_session> session_;
  layer_calls_ptr calls_;
  std::shared_ptr<device_table> devices_;
  std::shared_ptr<joint_rounds> joint_;
};

std::string layer_name(const replication_scope& scope,
                       const callback_context& context, const char* kind,
                       const layer_group& group) {
  auto name =
      scope.options().prefix + (context.path().empty() ? kind : context.path());
  auto is_whole = group.last - group.first == context.copies();
  if (scope.options().group_size != 0 && !is_whole)
    name += fmt::format(" (copies {} to {})", group.first, group.last - 1);
  return name;
}

/// The group's first copy opens the group for the others.
batch_norm_participant open(const replication_scope& scope,
                            const callback_context& context, const char* kind,
                            layer_group& group) {
  sync_options options;
  options.layer = layer_name(scope, context, kind, group);
  options.deadline = scope.options().deadline;
  auto copies = group.last - group.first;
  if (scope.graph() == graph_kind::joint && copies > 1)
    group.joint = make_joint_rounds(static_cast<std::size_t>(copies));
  if (scope.graph() == graph_kind::own && scope.distant() == nullptr)
    group.devices =
        std::make_shared<device_table>(static_cast<std::size_t>(copies));
  if (scope.session())
    group.calls =
        std::make_shared<layer_calls>(options.layer, scope.session()->copies(),
                                      static_cast<std::size_t>(group.first),
                                      static_cast<std::size_t>(group.last));
  batch_norm_participant result{scope.system(), options, copies};
  group.master = result.master();
  if (scope.distant() == nullptr)
    group.relays =
        spawn_batch_norm_relays(scope.system(), group.master, options, copies);
  return result;
}

const batch_norm_master_actor& find_master(const layer_masters& masters,
                                           const std::string& path) {
  auto found =
      std::ranges::find(masters, path, [](const auto& x) { return x.path; });
  if (found == masters.end() || !found->master)
    throw error{errc::invalid_argument,
                fmt::format("follow_copies: layer \"{}\": expected its master, "
                            "found none among {}",
                            path, masters.size())};
  return found->master;
}

participant_ptr make_distant_seat(const replication_scope& scope,
                                  callback_context& context,
                                  distant_copies& all, const char* kind) {
  layer_group group;
  group.last = all.copies;
  auto layer = layer_name(scope, context, kind, group);
  if (all.copy_id != 0)
    return std::make_shared<layer_seat>(
        batch_norm_participant{scope.system(),
                               find_master(all.masters, context.path()),
                               all.copy_id},
        std::move(layer), all.copy_id, nullptr, group);
  auto taking_part = open(scope, context, kind, group);
  all.masters.push_back({context.path(), group.master});
  return std::make_shared<layer_seat>(std::move(taking_part), std::move(layer),
                                      0, nullptr, group);
}

} // namespace

participant_ptr make_seat(const replication_scope& scope,
                          callback_context& context, std::int64_t copy_id,
                          const char* kind) {
  if (auto* distant = scope.distant())
    return make_distant_seat(scope, context, *distant, kind);
  if (copy_id == 0)
    context.publish(std::make_shared<std::vector<layer_group>>(
        divide(context.copies(), scope.options().group_size)));
  auto& groups = *context.published<layer_groups>();
  auto group = std::find_if(groups.begin(), groups.end(),
                            [&](const auto& x) { return copy_id < x.last; });
  auto taking_part =
      copy_id == group->first
          ? open(scope, context, kind, *group)
          : batch_norm_participant{scope.system(),
                                   group->relays->at(copy_id - group->first),
                                   copy_id - group->first};
  auto seat = std::make_shared<layer_seat>(
      std::move(taking_part), layer_name(scope, context, kind, *group), copy_id,
      scope.session(), *group);
  if (scope.session())
    scope.session()->add_seat(group->calls, static_cast<std::size_t>(copy_id),
                              seat.get());
  return seat;
}

round_reply merge_alone(round_request request) {
  auto like = request.device_values;
  std::vector<identified<batch_norm_message>> one(1);
  one[0].message = to_message(std::move(request));
  return reply_reader{}.read(merge_round(one), like);
}

} // namespace syncnorm::nn::detail
