#pragma once

#include "syncnorm/nn/synchronize_options.hpp"

#include <cstdint>
#include <memory>

namespace caf {
class actor_system;
}

namespace syncnorm::nn::detail {

class forward_session;
struct distant_copies;

/// Who owns the graph that backward runs through.
enum class graph_kind : std::uint8_t {
  /// Each copy has its own, with a thread and a backward call of its own: the
  /// copies exchange messages in backward.
  own = 0,
  /// All copies share one, and one backward call: the cross-copy step is one
  /// node.
  joint = 1,
};

/// While a scope lives, replication callbacks on the same thread find in it
/// what they need: the actor system in which masters are spawned. Scopes nest;
/// the innermost counts.
class replication_scope {
public:
  /// @param session what `DataParallelWithCallback` knows about its copies, or
  ///                null.
  /// @param distant what `lead_copies` and `follow_copies` know about the
  ///                copies that are not here, or null.
  /// @throws error `invalid_argument` for a deadline of zero or less or a
  ///         negative group size; one above `max_deadline` is refused when the
  ///         first layer is replicated.
  explicit replication_scope(caf::actor_system& system,
                             SynchronizeOptions options = {},
                             graph_kind graph = graph_kind::own,
                             std::shared_ptr<forward_session> session = nullptr,
                             distant_copies* distant = nullptr);

  replication_scope(const replication_scope&) = delete;
  replication_scope& operator=(const replication_scope&) = delete;
  ~replication_scope();

  /// The innermost scope of this thread, or null.
  [[nodiscard]] static const replication_scope* current() noexcept;

  /// What spawns the masters.
  [[nodiscard]] caf::actor_system& system() const noexcept {
    return *system_;
  }

  /// What the scope was opened with.
  [[nodiscard]] const SynchronizeOptions& options() const noexcept {
    return options_;
  }

  /// Who owns the graphs of the copies.
  [[nodiscard]] graph_kind graph() const noexcept {
    return graph_;
  }

  /// The pass that the scope belongs to, or null.
  [[nodiscard]] const std::shared_ptr<forward_session>&
  session() const noexcept {
    return session_;
  }

  /// The copies that are not here, or null.
  [[nodiscard]] distant_copies* distant() const noexcept {
    return distant_;
  }

private:
  caf::actor_system* system_;
  SynchronizeOptions options_;
  graph_kind graph_;
  std::shared_ptr<forward_session> session_;
  distant_copies* distant_;
  const replication_scope* outer_;
};

} // namespace syncnorm::nn::detail
