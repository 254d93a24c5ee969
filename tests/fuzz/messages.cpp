// libFuzzer's entry to `read`.

#include "tests/fuzz/messages.hpp"

#include <cstdlib>

namespace {

struct config : caf::actor_system_config {
  config() {
    syncnorm::detail::add_types<caf::id_block::syncnorm>(*this);
  }
};

/// Lives as long as the process: the fuzzer leaves by `_Exit`.
caf::actor_system* fuzzed_system = nullptr;

} // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  syncnorm::detail::init_types<caf::id_block::syncnorm>();
  static auto* settings = new config;
  fuzzed_system = new caf::actor_system{*settings};
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (!syncnorm::fuzz::read(std::as_bytes(std::span{data, size}),
                            *fuzzed_system))
    std::abort();
  return 0;
}
