// libFuzzer's entry to `read`.

#include "tests/fuzz/messages.hpp"

#include <cstdlib>

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  syncnorm::detail::init_types<caf::id_block::syncnorm>();
  static struct config : caf::actor_system_config {
    config() {
      syncnorm::detail::add_types<caf::id_block::syncnorm>(*this);
    }
  } cfg;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (!syncnorm::fuzz::read(std::as_bytes(std::span{data, size})))
    std::abort();
  return 0;
}
