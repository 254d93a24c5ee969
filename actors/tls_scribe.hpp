#pragma once

#include "door.hpp"
#include "let_go.hpp"

#include "syncnorm/detail/caf_compat.hpp"

#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/stream_impl.hpp>
#include <caf/openssl/session.hpp>
#include <openssl/err.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace syncnorm::detail {

/// How a CAF stream reads and writes by TLS. OpenSSL keeps errors per thread,
/// and takes any that it finds for errors of the connection that it looks at
/// next. So what another connection, or another part of the program, has left
/// there is cleared first, or it would end this connection.
class tls_policy {
public:
  using socket = caf::io::network::native_socket;
  using state = caf::io::network::rw_state;

  /// @param through where to report what OpenSSL finds wrong, if the port is
  /// one's own.
  tls_policy(caf::openssl::session_ptr session,
             std::shared_ptr<const door> through)
      : session_{std::move(session)},
        door_{std::move(through)} {}

  state read_some(std::size_t& result, socket fd, void* data,
                  std::size_t size) {
    at_door here{door_.get()};
    ERR_clear_error();
    return session_->read_some(result, fd, data, size);
  }

  state write_some(std::size_t& result, socket fd, const void* data,
                   std::size_t size) {
    at_door here{door_.get()};
    ERR_clear_error();
    return session_->write_some(result, fd, data, size);
  }

  /// Whether OpenSSL holds bytes that the socket no longer has.
  bool must_read_more(socket fd, std::size_t size) {
    return session_->must_read_more(fd, size);
  }

private:
  caf::openssl::session_ptr session_;
  std::shared_ptr<const door> door_;
};

/// A CAF connection by TLS. CAF's openssl module has one that is private to it.
class tls_scribe : public caf::io::scribe {
public:
  using buffer = std::remove_cvref_t<
      decltype(std::declval<caf::io::network::stream>().rd_buf())>;

  tls_scribe(caf::io::network::default_multiplexer& multiplexer,
             caf::io::network::native_socket socket,
             caf::openssl::session_ptr session,
             std::shared_ptr<const door> through)
      : scribe{caf::io::network::conn_hdl_from_socket(socket)},
        stream_{multiplexer, socket, std::move(session), std::move(through)} {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (std::exchange(started_, true))
      return;
    stream_.start(this);
    // OpenSSL may have to write in its handshake.
    stream_.force_empty_write(this);
  }

  void ack_writes(bool enable) override {
    stream_.ack_writes(enable);
  }

  buffer& wr_buf() override {
    return stream_.wr_buf();
  }

  buffer& rd_buf() override {
    return stream_.rd_buf();
  }

  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }

  void flush() override {
    stream_.flush(this);
  }

  [[nodiscard]] std::string addr() const override {
    auto address = caf::io::network::remote_addr_of_fd(stream_.fd());
    return address ? *address : "";
  }

  [[nodiscard]] std::uint16_t port() const override {
    auto port = caf::io::network::remote_port_of_fd(stream_.fd());
    return port ? *port : 0;
  }

  void add_to_loop() override {
    stream_.activate(this);
  }

  void remove_from_loop() override {
    stream_.passivate();
    let_go(*this, stream_);
  }

private:
  caf::io::network::stream_impl<tls_policy> stream_;
  bool started_ = false;
};

} // namespace syncnorm::detail
