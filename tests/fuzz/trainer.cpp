// libFuzzer's entry to `read_trainer`.

#include "tests/fuzz/trainer.hpp"

#include <cstdlib>

namespace {

struct config : caf::actor_system_config {
  config() {
    syncnorm::detail::add_types<caf::id_block::syncnorm,
                                caf::id_block::syncnorm_train>(*this);
  }
};

/// Lives as long as the process: the fuzzer leaves by `_Exit`.
caf::actor_system* fuzzed_system = nullptr;

} // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  syncnorm::detail::init_types<caf::id_block::syncnorm,
                               caf::id_block::syncnorm_train>();
  static auto* settings = new config;
  fuzzed_system = new caf::actor_system{*settings};
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (!syncnorm::fuzz::read_trainer(std::as_bytes(std::span{data, size}),
                                    *fuzzed_system))
    std::abort();
  return 0;
}
