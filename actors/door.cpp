#include "door.hpp"

#include "syncnorm/config.hpp"

#include <fmt/format.h>

namespace syncnorm::detail {

thread_local const door* at_door::current = nullptr;

void door::tell(const std::string& who, const std::string& why) const {
  auto line = fmt::format("{} is refused: {}", who, why);
  if (accepts_log(*system_, log_level::warning))
    write_log(*system_, log_level::warning, line);
  if (auto listener = caf::actor_cast<caf::actor>(listener_))
    detail::anon_send(listener, line);
}

} // namespace syncnorm::detail
