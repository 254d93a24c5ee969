#pragma once

#include "bench/peers.hpp"

namespace syncnorm::bench {

/// True if this build has libtorch to compare with.
[[nodiscard]] bool has_libtorch() noexcept;

/// libtorch's plain batch normalization, for the thread that calls this; null
/// without libtorch.
[[nodiscard]] std::unique_ptr<peer> make_plain_peer(const layer_memory& memory);

} // namespace syncnorm::bench
