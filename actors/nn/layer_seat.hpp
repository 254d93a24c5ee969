#pragma once

#include "actors/nn/closable.hpp"
#include "actors/nn/layer_group.hpp"
#include "actors/nn/round_messages.hpp"
#include "actors/with_layer.hpp"
#include "syncnorm/batch_norm_participant.hpp"
#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace syncnorm::nn::detail {

/// A copy's seat at a layer of several copies, or of one.
class layer_seat final : public participant {
public:
  /// @param name  see `name`.
  /// @param layer names the layer in the texts of its rounds.
  layer_seat(batch_norm_participant taking_part, std::string name,
             std::string layer, std::int64_t copy_id,
             std::shared_ptr<forward_session> session, const layer_group& group)
      : part_{std::in_place,
              taking_part.copy_id() == 0 ? group.relays : nullptr,
              std::move(taking_part)},
        copy_of_group_{part_->participant.copy_id()},
        is_alone_{!part_->participant.master()},
        name_{std::move(name)},
        layer_{std::move(layer)},
        copy_id_{copy_id},
        session_{std::move(session)},
        calls_{group.calls},
        devices_{group.devices},
        graphs_{group.graphs},
        joint_{group.joint} {}

  [[nodiscard]] const std::string& name() const noexcept override {
    return name_;
  }

  void require_pass() const override {
    if (session_)
      session_->require_pass(*calls_, static_cast<std::size_t>(copy_id_));
  }

  void begin(round_request request) override {
    if (session_)
      session_->enter(*calls_, static_cast<std::size_t>(copy_id_));
    use here{*this};
    here.require();
    if (busy_.exchange(true, std::memory_order_acquire))
      throw error{errc::invalid_argument,
                  fmt::format("copy {} begins a round before it has the reply "
                              "of the last one: one thread uses a copy at a "
                              "time, and calls of a layer on a device must "
                              "depend on each other",
                              copy_id_)};
    ++rounds_;
    if (!request.backward)
      tell_what_is_here(request);
    auto like = request.device_values;
    try {
      part_->participant.begin(to_message(std::move(request)));
    } catch (...) {
      busy_.store(false, std::memory_order_release);
      throw;
    }
    like_ = std::move(like);
  }

  round_reply end() override {
    use here{*this};
    here.require();
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
    use here{*this};
    if (!here)
      return;
    try {
      part_->participant.give_up(why);
    } catch (...) {
      // The master is gone: then the others know.
    }
  }

  void layer_failed(const std::string& why) noexcept override {
    // The session must know of this failure before it can cause others.
    if (!session_)
      give_up(why);
  }

  void leave() noexcept override {
    if (!is_alone_ && uses_.close())
      part_.reset();
  }

  [[nodiscard]] std::int64_t copy_id() const noexcept override {
    return copy_of_group_;
  }

  [[nodiscard]] std::uint64_t messages_sent() const noexcept override {
    use here{*this};
    return here ? part_->participant.messages_sent() : 0;
  }

  [[nodiscard]] std::uint64_t rounds() const noexcept override {
    return rounds_;
  }

  [[nodiscard]] std::optional<std::string> shared_device() const override {
    return devices_ ? devices_->shared() : std::nullopt;
  }

  [[nodiscard]] std::int64_t copy_without_graph() const override {
    auto found = graphs_ ? graphs_->first_without(forward_calls_) : -1;
    return found < 0 ? found : found + copy_id_ - copy_of_group_;
  }

  [[nodiscard]] joint_rounds* joint() const noexcept override {
    return joint_.get();
  }

  [[nodiscard]] std::shared_ptr<const std::atomic<bool>>
  pass_is_over() const override {
    return session_ ? session_->is_over() : nullptr;
  }

private:
  /// What takes part in the rounds, until the seat is left.
  struct part {
    part(std::shared_ptr<batch_norm_relays> of_group,
         batch_norm_participant&& taking_part)
        : relays{std::move(of_group)},
          participant{std::move(taking_part)} {}

    /// Of the first copy: they end after the master, which `participant` holds.
    std::shared_ptr<batch_norm_relays> relays;
    batch_norm_participant participant;
  };

  /// While one of these lives and is true, the part lives.
  class use {
  public:
    explicit use(const layer_seat& seat)
        : seat_{seat},
          entered_{seat.uses_.enter()} {}

    use(const use&) = delete;
    use& operator=(const use&) = delete;

    ~use() {
      if (entered_ && seat_.uses_.leave())
        seat_.part_.reset();
    }

    explicit operator bool() const noexcept {
      return entered_;
    }

    /// @throws error `stale` for a seat that was left.
    void require() const {
      if (!entered_)
        throw error{errc::stale,
                    fmt::format("layer {}, copy {}: it was released or "
                                "destroyed before this pass; keep the copies "
                                "until their backward passes are done",
                                seat_.layer_, seat_.copy_id_)};
    }

  private:
    const layer_seat& seat_;
    bool entered_;
  };

  /// Publishes what other copies in this process ask about this forward call.
  void tell_what_is_here(const round_request& request) {
    ++forward_calls_;
    auto copy = static_cast<std::size_t>(copy_of_group_);
    const auto& values = request.device_values;
    if (devices_)
      devices_->set(
          copy, values.data() != nullptr ? values.stream().where().index : -1);
    if (graphs_)
      graphs_->set(forward_calls_, copy, request.has_graph);
  }

  batch_norm_reply await_reply() {
    try {
      return part_->participant.end();
    } catch (const error& x) {
      auto round = fmt::format("{}, round {}", layer_, rounds_);
      throw error{x.code(), syncnorm::detail::with_layer(round, x.what())};
    }
  }

  mutable closable uses_;
  mutable std::optional<part> part_;
  std::int64_t copy_of_group_;
  /// If so, there are no actors to leave, and a graph may go on without its
  /// layer.
  bool is_alone_;
  std::string name_;
  std::string layer_;
  reply_reader replies_;
  /// Shows where the outstanding reply must lie.
  device_array like_;
  std::uint64_t rounds_ = 0;
  std::uint64_t forward_calls_ = 0;
  /// True between `begin` and `end`, which may be on different threads.
  std::atomic<bool> busy_ = false;
  std::int64_t copy_id_;
  std::shared_ptr<forward_session> session_;
  layer_calls_ptr calls_;
  std::shared_ptr<device_table> devices_;
  std::shared_ptr<graph_table> graphs_;
  std::shared_ptr<joint_rounds> joint_;
};

} // namespace syncnorm::nn::detail
