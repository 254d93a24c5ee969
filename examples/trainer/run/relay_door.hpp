#pragma once

#include "trainer/plan/settings.hpp"
#include "trainer/run/messages.hpp"

#include <string>

namespace syncnorm::train {

/// How the processes that have joined a run connect to each other, if they are
/// too many for the server to receive what all of them send: one opens a port,
/// those below it in the tree connect to it. One object per process.
class relay_door {
public:
  /// @param options must live as long as this object.
  relay_door(caf::actor_system& system, const settings& options);
  relay_door(const relay_door&) = delete;
  relay_door& operator=(const relay_door&) = delete;
  ~relay_door();

  /// Opens the port, unless it is open, at `options.listen` or, if that is
  /// empty, at the address by which this process reaches the server.
  /// @returns `HOST:PORT`.
  /// @throws failure if the address is not available.
  std::string open();

  /// Connects to the process whose door is at `where`.
  /// @throws failure if nobody answers there in time.
  void reach(const std::string& where);

  /// From now on, no process is above this one.
  void leave();

  /// Returns why messages of this process do not get to the one above it;
  /// empty: they do, or no process is above it.
  [[nodiscard]] std::string find_break() const;

private:
  [[nodiscard]] std::string own_host() const;
  void close();

  caf::actor_system& system_;
  const settings& options_;
  door_actor own_;
  caf::actor doorkeeper_;
  std::string where_;
  door_actor above_;
  std::string above_where_;
  /// Why the one above was not reached; empty: it was.
  std::string why_;
};

} // namespace syncnorm::train
