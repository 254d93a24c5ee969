#pragma once

#include "bounded_connection.hpp"
#include "door.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace syncnorm::detail {

/// Opens a port, or connects, for the system; ends with this object.
class doorman {
public:
  doorman(caf::actor_system& system, std::size_t limit, caf::timespan patience,
          std::shared_ptr<const door> opened = nullptr)
      : actor_{
          spawn_bounded_doorman(system, limit, patience, std::move(opened))} {}

  doorman(const doorman&) = delete;
  doorman& operator=(const doorman&) = delete;

  ~doorman() {
    caf::anon_send_exit(actor_, caf::exit_reason::kill);
  }

  [[nodiscard]] const caf::io::middleman_actor& actor() const noexcept {
    return actor_;
  }

private:
  caf::io::middleman_actor actor_;
};

/// Maximum bytes per message, or what is wrong with the system, the address or
/// the configuration.
[[nodiscard]] caf::expected<std::size_t> limit_at(const char* function,
                                                  caf::actor_system& system,
                                                  const std::string& address,
                                                  bool insecure);

} // namespace syncnorm::detail
