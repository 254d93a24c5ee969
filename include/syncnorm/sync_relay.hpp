#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/config.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/detail/sync_relay_impl.hpp"
#include "syncnorm/sync_callback.hpp"
#include "syncnorm/sync_options.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncnorm {

/// The replicas that a relay stands for: `first` to `first + count - 1`.
struct replica_range {
  /// The lowest identifier: 1 or more.
  std::int64_t first = 1;
  /// How many: 1 or more.
  std::int64_t count = 1;

  /// Equal in both.
  friend bool operator==(const replica_range&, const replica_range&) = default;
};

/// Spawns a relay. The slaves of `range` register with it under their own
/// identifiers and see it as their master. `parent` (the master or another
/// relay, here or on another node) sees it as one participant. In each round,
/// one message goes to the parent, and one comes back. The reply has the same
/// bits as if all slaves had registered with the master itself.
///
/// A slave's registration is answered when the relay's own has been answered.
/// Every replica of the range must register and take part. Deadline and failure
/// policy are the master's. A round fails for all replicas of the tree or for
/// none, except where a relay is lost, has waited in vain for its parent's
/// answer, or registers a replica again before that answer. All participants
/// get the same error, which names the replica at fault; if several replicas
/// fail at the same time, not all participants need hear of the same one. If a
/// relay dies or its node is lost, the error names its range; participants
/// behind that relay get `master_down`. After a failure, slaves register again
/// with the same relay. If the relay has died, its replicas can register with a
/// new relay for the same range, with several relays for parts of it, or with
/// the parent itself; if the parent has died, spawn a relay with the new
/// parent.
///
/// The relay lives until its last handle is gone or it is told to exit. With a
/// parent on another node, or once another node knows it, it lives until it is
/// told to exit, and its actor system waits for that.
/// @param layer as the master's.
/// @param merge the `sync_reduction::merge` of the master.
/// @throws error `invalid_argument` for an empty layer name or function, a null
///         parent, a range that is empty, begins below 1 or goes beyond
///         2^63 - 2, or a bad configuration.
template <class In, class Out>
[[nodiscard]] sync_master_actor<In, Out>
spawn_sync_relay(caf::actor_system& system,
                 const std::type_identity_t<sync_master_actor<In, Out>>& parent,
                 std::string layer, replica_range range,
                 std::function<In(std::span<identified<In>>)> merge);

/// One relay of a tree of relays.
struct planned_relay {
  /// What it stands for.
  replica_range range;
  /// Position of its parent in the plan; nothing if that is the master.
  std::optional<std::size_t> parent;
};

/// The relays that `replicas` replicas (including the owner, identifier 0) need
/// so that no actor takes more than about `fan_in` messages per round: none for
/// up to `fan_in` replicas, otherwise a tree in which each relay stands for a
/// node of the merge tree. Parents come before their children.
/// @throws error `invalid_argument` for less than 1 replica or a fan-in below
///         2.
[[nodiscard]] std::vector<planned_relay> plan_relays(std::int64_t replicas,
                                                     std::int64_t fan_in);

/// Where the replicas of a master register: with the master itself or, if there
/// are more replicas than the fan-in, with a tree of relays in this process;
/// the relays exit when this object is destroyed.
template <class In, class Out>
class sync_relays {
public:
  /// A master's or a relay's handle.
  using handle_type = sync_master_actor<In, Out>;

  /// @param master may be null if no relay is needed; then `at` returns null,
  ///               too.
  /// @param replicas how many there will be, the owner included.
  /// @throws error as `plan_relays` and `spawn_sync_relay`.
  sync_relays(caf::actor_system& system, handle_type master,
              const sync_options& options, std::int64_t replicas,
              std::function<In(std::span<identified<In>>)> merge)
      : master_{std::move(master)},
        plan_{
            plan_relays(replicas, *resolve(options, system.config()).fan_in)} {
    for (const auto& x : plan_)
      handles_.push_back(spawn_sync_relay<In, Out>(
          system, x.parent ? handles_[*x.parent] : master_, options.layer,
          x.range, merge));
  }

  sync_relays(const sync_relays&) = delete;
  sync_relays& operator=(const sync_relays&) = delete;

  ~sync_relays() {
    for (const auto& x : handles_)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
  }

  /// The actor with which the slave of that identifier registers.
  [[nodiscard]] const handle_type& at(std::int64_t identifier) const {
    // Leaves are at the end, in ascending order.
    for (auto i = plan_.size(); i-- > 0;) {
      const auto& range = plan_[i].range;
      if (identifier >= range.first && identifier < range.first + range.count)
        return handles_[i];
    }
    return master_;
  }

  /// The master above them.
  [[nodiscard]] const handle_type& master() const noexcept {
    return master_;
  }

  /// How many relays there are.
  [[nodiscard]] std::size_t size() const noexcept {
    return handles_.size();
  }

private:
  handle_type master_;
  std::vector<planned_relay> plan_;
  std::vector<handle_type> handles_;
};

namespace detail {

/// @throws error as `spawn_sync_relay`.
void check_relay(const std::string& layer, replica_range range, bool has_parent,
                 bool has_merge);

} // namespace detail

template <class In, class Out>
sync_master_actor<In, Out>
spawn_sync_relay(caf::actor_system& system,
                 const std::type_identity_t<sync_master_actor<In, Out>>& parent,
                 std::string layer, replica_range range,
                 std::function<In(std::span<identified<In>>)> merge) {
  using impl = detail::sync_relay_impl<In, Out>;
  detail::check_relay(layer, range, static_cast<bool>(parent),
                      static_cast<bool>(merge));
  // The parent's ticket decides on the rest.
  auto options =
      resolve(sync_options{.layer = std::move(layer)}, system.config());
  detail::logger_guard guard;
  return system.spawn<impl>(parent, std::move(options), range.first,
                            range.count, std::move(merge));
}

} // namespace syncnorm
