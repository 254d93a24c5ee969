#include "actors/nn/autocast_pass.hpp"

namespace syncnorm::nn::detail {

autocast_settings autocast_settings::current() {
  autocast_settings result;
  result.cached = at::autocast::is_autocast_cache_enabled();
#if TORCH_VERSION_MAJOR < 2
  result.cpu = at::autocast::get_autocast_cpu_dtype();
  result.cuda = at::autocast::get_autocast_gpu_dtype();
#endif
  return result;
}

void autocast_settings::apply() const {
  at::autocast::set_autocast_cache_enabled(cached);
#if TORCH_VERSION_MAJOR < 2
  at::autocast::set_autocast_cpu_dtype(cpu);
  at::autocast::set_autocast_gpu_dtype(cuda);
#endif
}

autocast_pass::autocast_pass(const autocast_settings& caller) {
  caller.apply();
  at::autocast::increment_nesting();
}

autocast_pass::~autocast_pass() {
  if (at::autocast::decrement_nesting() == 0)
    at::autocast::clear_cache();
}

} // namespace syncnorm::nn::detail
