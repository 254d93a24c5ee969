#include "bounded_connection.hpp"

#include "door_watch.hpp"

#include <caf/io/middleman_actor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/doorman_impl.hpp>
#include <caf/io/network/scribe_impl.hpp>

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

class bounded_scribe final : public io::network::scribe_impl {
public:
  /// @param door the port that was connected to; 0: this side connects.
  bounded_scribe(default_multiplexer& multiplexer, native_socket socket,
                 std::uint16_t door)
      : scribe_impl{multiplexer, socket},
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
    if (wanted_ <= granted)
      return pass_on(context, data, size);
    const auto& piece = rd_buf();
    arrived_.insert(arrived_.end(), piece.data(), piece.data() + size);
    if (arrived_.size() < wanted_) {
      auto next = std::min(wanted_ - arrived_.size(), granted);
      scribe_impl::configure_read(io::receive_policy::exactly(next));
      return true;
    }
    rd_buf() = std::exchange(arrived_, {});
    return pass_on(context, rd_buf().data(), wanted_);
  }

protected:
  /// Called when the other side is gone.
  caf::message detach_message() override {
    if (passed_on_ == 1)
      refuse("it left before its handshake with CAF was complete");
    return scribe_impl::detach_message();
  }

private:
  bool pass_on(worker_type* context, const void* data, std::size_t size) {
    auto result = scribe::consume(context, data, size);
    // CAF's broker has closed it.
    if (detached())
      refuse("what it sent is no message of CAF's");
    ++passed_on_;
    return result;
  }

  void refuse(const char* why) {
    if (auto door = std::exchange(door_, 0); door != 0)
      tell_door(door, peer_, why);
  }

  std::uint16_t door_;
  std::string peer_;
  /// Bytes of the next part of a message: a header, or what it announces.
  std::size_t wanted_ = 0;
  /// Of these, if they are not taken for granted, so many.
  std::remove_cvref_t<decltype(std::declval<scribe_impl>().rd_buf())> arrived_;
  /// Parts of messages; the first two are the handshake.
  std::uint64_t passed_on_ = 0;
};

class bounded_doorman final : public io::network::doorman_impl {
public:
  using doorman_impl::doorman_impl;

  bool new_connection() override {
    if (detached())
      return false;
    auto& multiplexer = acceptor_.backend();
    auto socket = acceptor_.accepted_socket();
    std::ignore = io::network::keepalive(socket, true);
    auto scribe =
        caf::make_counted<bounded_scribe>(multiplexer, socket, port());
    auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    return doorman::new_connection(&multiplexer, handle);
  }
};

class bounded_middleman final : public io::middleman_actor_impl {
public:
  using middleman_actor_impl::middleman_actor_impl;

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
        caf::make_counted<bounded_scribe>(multiplexer(), *socket, 0)};
  }

  caf::expected<io::doorman_ptr> open(std::uint16_t port, const char* address,
                                      bool reuse) override {
    auto socket = io::network::new_tcp_acceptor_impl(port, address, reuse);
    if (!socket)
      return std::move(socket.error());
    return io::doorman_ptr{
        caf::make_counted<bounded_doorman>(multiplexer(), *socket)};
  }

private:
  default_multiplexer& multiplexer() {
    return static_cast<default_multiplexer&>(system().middleman().backend());
  }
};

} // namespace

io::middleman_actor spawn_bounded_doorman(caf::actor_system& system) {
  // Connecting and looking up a name wait.
  return system.spawn<bounded_middleman, caf::detached>(
      protocol_broker(system));
}

} // namespace syncnorm::detail
