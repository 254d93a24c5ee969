#pragma once

#include "door.hpp"

#include "syncnorm/config.hpp"

#include <caf/io/all.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace syncnorm::detail {

/// What holds for all connections of a system.
struct connection_rules {
  caf::actor_system* system;
  /// Maximum bytes per message.
  std::size_t limit;
};

/// A connection that
/// - beyond a MiB, or a page before the handshake is complete, takes memory
///   only as the bytes of a message arrive. CAF's own connections take at once
///   what a message's header announces, up to 4 GiB.
/// - ends when a message longer than the rules allow is announced.
/// - reports at its door if it is refused.
/// @tparam Scribe CAF's type, which it would have otherwise.
template <class Scribe>
class bounded_scribe final : public Scribe {
public:
  /// @param through door of the port that was connected to; null: this side
  ///                connects.
  /// @param xs for the constructor of `Scribe`.
  template <class... Xs>
  bounded_scribe(const connection_rules& rules,
                 std::shared_ptr<const door> through, Xs&&... xs)
      : Scribe{std::forward<Xs>(xs)...},
        rules_{rules},
        door_{std::move(through)},
        peer_{this->addr()} {}

  void configure_read(caf::io::receive_policy::config config) override {
    wanted_ = config.second;
    arrived_.clear();
    granted_ = passed_on_ < handshake ? granted_to_strangers : granted;
    Scribe::configure_read({config.first, std::min(config.second, granted_)});
  }

  bool consume(worker_type* context, const void* data,
               std::size_t size) override {
    if (wanted_ <= granted_) {
      auto goes_on = pass_on(context, data, size);
      change_buffers();
      return goes_on;
    }
    const auto& piece = this->rd_buf();
    // A quarter of the memory that is taken has come, or there is no more.
    if (auto least = arrived_.size() + size; arrived_.capacity() < least)
      arrived_.reserve(std::min(wanted_, 4 * least));
    arrived_.insert(arrived_.end(), piece.data(), piece.data() + size);
    if (arrived_.size() < wanted_) {
      auto next = std::min(wanted_ - arrived_.size(), granted_);
      Scribe::configure_read(caf::io::receive_policy::exactly(next));
      return true;
    }
    // The memory of a long message is freed after it.
    auto pieces = std::exchange(this->rd_buf(), std::exchange(arrived_, {}));
    auto goes_on = pass_on(context, this->rd_buf().data(), wanted_);
    this->rd_buf() = std::move(pieces);
    change_buffers();
    return goes_on;
  }

  /// Called when this side ends the connection.
  void graceful_shutdown() override {
    if (passed_on_ == 1 && door_)
      refuse("its handshake with CAF was not complete when this side ended the "
             "connection");
    Scribe::graceful_shutdown();
  }

protected:
  /// Called when the other side is gone.
  caf::message detach_message() override {
    if (passed_on_ == 1 && door_)
      refuse("it left before its handshake with CAF was complete");
    return Scribe::detach_message();
  }

private:
  using bytes = std::remove_cvref_t<decltype(std::declval<Scribe>().rd_buf())>;

  /// This many bytes of a message get memory at once: longer messages are
  /// copied once more.
  static constexpr std::size_t granted = std::size_t{1} << 20U;
  /// The same before the handshake is complete: enough for the handshake.
  static constexpr std::size_t granted_to_strangers = std::size_t{1} << 12U;
  /// How many message parts the handshake has.
  static constexpr std::uint64_t handshake = 2;

  bool pass_on(worker_type* context, const void* data, std::size_t size) {
    auto result = Scribe::consume(context, data, size);
    ++passed_on_;
    // CAF's broker has closed the connection.
    if (this->detached()) {
      refuse("what it sent is no message of CAF's");
      return result;
    }
    if (wanted_ > rules_.limit) {
      refuse(fmt::format("it announced a message of {} bytes, more than "
                         "syncnorm.max-message, {}",
                         wanted_, rules_.limit));
      this->io_failure(context, caf::io::network::operation::read);
      return false;
    }
    return result;
  }

  /// Headers and what they announce are read alternately. The stream resizes
  /// its buffer for what is next, and fills what it adds with zeros: two
  /// buffers that keep their sizes avoid that.
  void change_buffers() {
    if (this->rd_buf().size() != std::min(wanted_, granted_))
      this->rd_buf().swap(other_);
  }

  /// Reports once why the other side is refused.
  void refuse(const std::string& why) {
    if (std::exchange(refused_, true))
      return;
    if (door_)
      door_->tell(peer_, why);
    else if (accepts_log(*rules_.system, log_level::warning))
      write_log(*rules_.system, log_level::warning,
                fmt::format("{} is refused: {}", peer_, why));
  }

  connection_rules rules_;
  std::shared_ptr<const door> door_;
  std::string peer_;
  bool refused_ = false;
  /// Bytes of the next part of a message: a header, or what it announces.
  std::size_t wanted_ = 0;
  /// How many of them get memory at once.
  std::size_t granted_ = granted_to_strangers;
  /// If there are more: what has arrived.
  bytes arrived_;
  bytes other_;
  /// Message parts passed on so far.
  std::uint64_t passed_on_ = 0;
};

} // namespace syncnorm::detail
