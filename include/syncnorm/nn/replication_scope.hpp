#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace caf {
class actor_system;
}

namespace syncnorm::nn {

namespace detail {
class forward_session;
struct distant_copies;
} // namespace detail

/// How copies of a model synchronize their layers.
struct SynchronizeOptions {
  /// How long a round may take from its first message to its last. Left open:
  /// as the actor system is configured (`syncnorm.deadline`), else 60 s.
  std::optional<std::chrono::nanoseconds> deadline = std::nullopt;
  /// Copies that share statistics: 2 makes groups of copies 0 and 1, 2 and 3,
  /// and so on, the last group with what is left; 0: all copies.
  std::int64_t group_size = 0;
  /// Stands before each layer's path in error texts.
  std::string prefix;

  /// Whether all of them are the same.
  friend bool operator==(const SynchronizeOptions&,
                         const SynchronizeOptions&) = default;
};

/// Who owns the graph that backward runs through.
enum class graph_kind : std::uint8_t {
  /// Each copy its own, with a thread of its own and a backward call of its
  /// own: the copies exchange messages in backward.
  own = 0,
  /// All copies one, with one backward call: the cross-copy step is one node.
  joint = 1,
};

/// While one of these lives, replication callbacks on the same thread find in
/// it what they need: the actor system in which masters are spawned. Scopes
/// nest; the innermost counts.
class replication_scope {
public:
  /// @param session what `DataParallelWithCallback` knows of its copies; leave
  ///                it out.
  /// @param distant what `lead_copies` and `follow_copies` know of the copies
  ///                that are not here; leave it out.
  /// @throws error `invalid_argument` for a deadline of zero or less or a
  ///         negative group size; one above `max_deadline` is refused when the
  ///         first layer is replicated.
  explicit replication_scope(
      caf::actor_system& system, SynchronizeOptions options = {},
      graph_kind graph = graph_kind::own,
      std::shared_ptr<detail::forward_session> session = nullptr,
      detail::distant_copies* distant = nullptr);

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

  /// Whose graphs the copies have.
  [[nodiscard]] graph_kind graph() const noexcept {
    return graph_;
  }

  /// The pass that the scope belongs to, or null. For the library's layers.
  [[nodiscard]] const std::shared_ptr<detail::forward_session>&
  session() const noexcept {
    return session_;
  }

  /// The copies that are not here, or null. For the library's layers.
  [[nodiscard]] detail::distant_copies* distant() const noexcept {
    return distant_;
  }

private:
  caf::actor_system* system_;
  SynchronizeOptions options_;
  graph_kind graph_;
  std::shared_ptr<detail::forward_session> session_;
  detail::distant_copies* distant_;
  const replication_scope* outer_;
};

} // namespace syncnorm::nn
