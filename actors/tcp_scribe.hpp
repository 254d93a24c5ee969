#pragma once

#include "let_go.hpp"

#include <caf/io/network/scribe_impl.hpp>

namespace syncnorm::detail {

/// A CAF connection that is freed whenever it is closed.
class tcp_scribe : public caf::io::network::scribe_impl {
public:
  using scribe_impl::scribe_impl;

  void remove_from_loop() override {
    scribe_impl::remove_from_loop();
    let_go(*this, stream_);
  }
};

} // namespace syncnorm::detail
