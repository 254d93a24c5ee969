#pragma once

#include "bench/peers.hpp"

namespace syncnorm::bench {

/// True if this build has libtorch to compare with.
[[nodiscard]] bool has_libtorch() noexcept;

/// A plain batch normalization for the thread that calls this: libtorch's, or,
/// in a build without it, the kernels' passes over all samples at once.
[[nodiscard]] std::unique_ptr<peer> make_plain_peer(const layer_memory& memory);

} // namespace syncnorm::bench
