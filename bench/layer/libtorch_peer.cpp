#include "bench/layer/peer.hpp"

namespace syncnorm::bench {

bool has_libtorch() noexcept {
  return true;
}

std::unique_ptr<peer> make_plain_peer(const layer_memory& memory) {
  return make_libtorch(memory);
}

} // namespace syncnorm::bench
