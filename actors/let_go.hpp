#pragma once

#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/operation.hpp>
#include <caf/io/network/stream.hpp>
#include <caf/io/scribe.hpp>

namespace syncnorm::detail {

/// Frees a closed connection. CAF's loop tells a stream to let go of its scribe
/// when the loop removes the stream. A stream that is closed in the loop step
/// in which it began is neither added nor removed: it and its scribe would hold
/// each other for ever. To be called by `remove_from_loop`.
/// @param stream of `scribe`.
inline void let_go(caf::io::scribe& scribe, caf::io::network::stream& stream) {
  // Not before the loop is done with this step, which still knows the stream.
  stream.backend().post([held = caf::io::scribe_ptr{&scribe}, &stream] {
    stream.removed_from_loop(caf::io::network::operation::read);
  });
}

} // namespace syncnorm::detail
