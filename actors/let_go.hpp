#pragma once

#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/operation.hpp>
#include <caf/io/network/stream.hpp>
#include <caf/io/scribe.hpp>

namespace syncnorm::detail {

/// Frees a connection that is closed. CAF's loop tells a stream to let go of
/// its scribe when it removes the stream; one that is closed in the step of the
/// loop in which it began is neither added nor removed, and would hold its
/// scribe, which holds it, for ever. To be called by `remove_from_loop`.
/// @param stream of `scribe`.
inline void let_go(caf::io::scribe& scribe, caf::io::network::stream& stream) {
  // Not before the loop is done with this step, which knows the stream.
  stream.backend().post([held = caf::io::scribe_ptr{&scribe}, &stream] {
    stream.removed_from_loop(caf::io::network::operation::read);
  });
}

} // namespace syncnorm::detail
