#include "bench/layer/peer.hpp"

namespace syncnorm::bench {

bool has_libtorch() noexcept {
  return false;
}

std::unique_ptr<peer> make_plain_peer(const layer_memory&) {
  return nullptr;
}

} // namespace syncnorm::bench
