#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/remote_master.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm {

/// Tells other nodes this node's masters and relays by name: one port for all
/// layers of a model. `publish_master` opens it.
using master_directory = detail::typed_actor<
    /// From `remote_master`, with a name: the actor of that name, and its
    /// messages.
    /// Errors: invalid_argument for an unknown name; the text lists the known
    /// ones.
    caf::result<caf::strong_actor_ptr, std::set<std::string>>(std::string)>;

/// A master or a relay of this process, and its name for others.
class named_master {
public:
  /// @param name for example the layer's.
  /// @param master a `sync_master_actor`.
  template <class Handle>
  named_master(std::string name, const Handle& master)
      : name_{std::move(name)},
        actor_{caf::actor_cast<caf::strong_actor_ptr>(master)},
        interface_{master
                       ? master.home_system().template message_types<Handle>()
                       : std::set<std::string>{}} {}

  /// The name by which others find it.
  [[nodiscard]] const std::string& name() const noexcept {
    return name_;
  }

  /// The actor.
  [[nodiscard]] const caf::strong_actor_ptr& actor() const noexcept {
    return actor_;
  }

  /// The messages that it takes, as CAF names them.
  [[nodiscard]] const std::set<std::string>& interface() const noexcept {
    return interface_;
  }

private:
  std::string name_;
  caf::strong_actor_ptr actor_;
  std::set<std::string> interface_;
};

/// Spawns the directory of `masters`, and keeps them alive. It lives until its
/// last handle is gone or, if published, until it is told to exit.
/// @throws error `invalid_argument` for a name that is empty or comes twice,
///         and for a handle that is null or of another node.
[[nodiscard]] master_directory
spawn_master_directory(caf::actor_system& system,
                       std::vector<named_master> masters);

namespace detail {

caf::expected<caf::strong_actor_ptr>
find_named(caf::actor_system& system, const std::set<std::string>& interface,
           const std::string& host, std::uint16_t port, const std::string& name,
           const connect_options& options);

} // namespace detail

/// Returns the handle of the master or relay that the directory at that address
/// has under that name.
/// @returns errors as `remote_handle`; `invalid_argument` if there is none of
///          that name, or it has another type; `malformed_message` if the
///          directory's answer is no actor of its node.
template <class In, class Out>
[[nodiscard]] caf::expected<sync_master_actor<In, Out>>
remote_master(caf::actor_system& system, const std::string& host,
              std::uint16_t port, const std::string& name,
              const connect_options& options = {}) {
  detail::require_exact_messages<In, Out>();
  using handle = sync_master_actor<In, Out>;
  auto found = detail::find_named(system, system.message_types<handle>(), host,
                                  port, name, options);
  if (!found)
    return found.error();
  return caf::actor_cast<handle>(*found);
}

} // namespace syncnorm
