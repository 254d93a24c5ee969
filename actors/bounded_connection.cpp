#include "bounded_connection.hpp"

#include "door_watch.hpp"

#include "syncnorm/config.hpp"

#include <caf/io/middleman_actor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/doorman_impl.hpp>
#include <caf/io/network/scribe_impl.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace syncnorm::detail {

namespace {

namespace io = caf::io;
using io::network::default_multiplexer;
using io::network::native_socket;

/// So many bytes of a message are taken for granted: more would be copied once
/// more.
constexpr std::size_t granted = std::size_t{1} << 20U;

/// What holds for all connections of a system.
struct connection_rules {
  caf::actor_system* system;
  /// The most bytes of a message.
  std::size_t limit;
};

class bounded_scribe final : public io::network::scribe_impl {
public:
  /// @param door the port that was connected to; 0: this side connects.
  bounded_scribe(default_multiplexer& multiplexer, native_socket socket,
                 const connection_rules& rules, std::uint16_t door)
      : scribe_impl{multiplexer, socket},
        rules_{rules},
        door_{door},
        peer_{addr()} {}

  void configure_read(io::receive_policy::config config) override {
    wanted_ = config.second;
    arrived_.clear();
    scribe_impl::configure_read(
        {config.first, std::min(config.second, granted)});
  }

  bool consume(worker_type* context, const void* data,
               std::size_t size) override {
    if (wanted_ <= granted) {
      auto goes_on = pass_on(context, data, size);
      change_buffers();
      return goes_on;
    }
    const auto& piece = rd_buf();
    // A quarter of the memory that is taken has come, or there is no more.
    if (auto least = arrived_.size() + size; arrived_.capacity() < least)
      arrived_.reserve(std::min(wanted_, 4 * least));
    arrived_.insert(arrived_.end(), piece.data(), piece.data() + size);
    if (arrived_.size() < wanted_) {
      auto next = std::min(wanted_ - arrived_.size(), granted);
      scribe_impl::configure_read(io::receive_policy::exactly(next));
      return true;
    }
    // What a long message took is free again after it.
    auto pieces = std::exchange(rd_buf(), std::exchange(arrived_, {}));
    auto goes_on = pass_on(context, rd_buf().data(), wanted_);
    rd_buf() = std::move(pieces);
    change_buffers();
    return goes_on;
  }

protected:
  /// Called when the other side is gone.
  caf::message detach_message() override {
    if (passed_on_ == 1 && door_ != 0)
      refuse("it left before its handshake with CAF was complete");
    return scribe_impl::detach_message();
  }

private:
  using bytes =
      std::remove_cvref_t<decltype(std::declval<scribe_impl>().rd_buf())>;

  bool pass_on(worker_type* context, const void* data, std::size_t size) {
    auto result = scribe::consume(context, data, size);
    ++passed_on_;
    // CAF's broker has closed it.
    if (detached()) {
      refuse("what it sent is no message of CAF's");
      return result;
    }
    if (wanted_ > rules_.limit) {
      refuse(fmt::format("it announced a message of {} bytes, more than "
                         "syncnorm.max-message, {}",
                         wanted_, rules_.limit));
      io_failure(context, io::network::operation::read);
      return false;
    }
    return result;
  }

  /// A header and what it announces are read by turns. The stream gives its
  /// buffer the size of what is next, and fills with zeros what it adds: two
  /// buffers that keep their sizes spare it that.
  void change_buffers() {
    if (rd_buf().size() != std::min(wanted_, granted))
      rd_buf().swap(other_);
  }

  /// Tells once why the other side is refused.
  void refuse(const std::string& why) {
    if (std::exchange(refused_, true))
      return;
    if (door_ != 0)
      tell_door(door_, peer_, why);
    else if (accepts_log(*rules_.system, log_level::warning))
      write_log(*rules_.system, log_level::warning,
                fmt::format("{} is refused: {}", peer_, why));
  }

  connection_rules rules_;
  std::uint16_t door_;
  std::string peer_;
  bool refused_ = false;
  /// Bytes of the next part of a message: a header, or what it announces.
  std::size_t wanted_ = 0;
  /// Of these, if they are not taken for granted, so many.
  bytes arrived_;
  bytes other_;
  /// Parts of messages; the first two are the handshake.
  std::uint64_t passed_on_ = 0;
};

class bounded_doorman final : public io::network::doorman_impl {
public:
  bounded_doorman(default_multiplexer& multiplexer, native_socket socket,
                  const connection_rules& rules)
      : doorman_impl{multiplexer, socket},
        rules_{rules} {}

  bool new_connection() override {
    if (detached())
      return false;
    auto& multiplexer = acceptor_.backend();
    auto socket = acceptor_.accepted_socket();
    std::ignore = io::network::keepalive(socket, true);
    auto scribe =
        caf::make_counted<bounded_scribe>(multiplexer, socket, rules_, port());
    auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    return doorman::new_connection(&multiplexer, handle);
  }

private:
  connection_rules rules_;
};

class bounded_middleman final : public io::middleman_actor_impl {
public:
  bounded_middleman(caf::actor_config& config, caf::actor broker,
                    std::size_t limit)
      : middleman_actor_impl{config, std::move(broker)},
        rules_{&system(), limit} {}

  const char* name() const override {
    return "syncnorm.doorman";
  }

protected:
  caf::expected<io::scribe_ptr> connect(const std::string& host,
                                        std::uint16_t port) override {
    auto socket = io::network::new_tcp_connection(host, port);
    if (!socket)
      return std::move(socket.error());
    std::ignore = io::network::keepalive(*socket, true);
    return io::scribe_ptr{
        caf::make_counted<bounded_scribe>(multiplexer(), *socket, rules_, 0)};
  }

  caf::expected<io::doorman_ptr> open(std::uint16_t port, const char* address,
                                      bool reuse) override {
    auto socket = io::network::new_tcp_acceptor_impl(port, address, reuse);
    if (!socket)
      return std::move(socket.error());
    return io::doorman_ptr{
        caf::make_counted<bounded_doorman>(multiplexer(), *socket, rules_)};
  }

private:
  default_multiplexer& multiplexer() {
    return static_cast<default_multiplexer&>(system().middleman().backend());
  }

  connection_rules rules_;
};

} // namespace

io::middleman_actor spawn_bounded_doorman(caf::actor_system& system) {
  auto limit = read_defaults(system.config()).max_message;
  // Connecting and looking up a name wait.
  return system.spawn<bounded_middleman, caf::detached>(
      protocol_broker(system), static_cast<std::size_t>(limit));
}

} // namespace syncnorm::detail
