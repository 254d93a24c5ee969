#pragma once

#include "actors/batch_norm_slave.hpp"

#include <caf/send.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// The master and the slave actors of a layer's copies, as
/// `batch_norm_stage::on_data_parallel_replicate` spawns them; but nobody waits
/// for them.
class simulated_slaves {
public:
  using replicas = std::vector<std::shared_ptr<batch_norm_replica>>;

  /// The handle that the node of a copy has of the master or a relay.
  using sight = std::function<batch_norm_master_actor(
      const batch_norm_master_actor&, std::int64_t copy)>;

  simulated_slaves(caf::actor_system& system, const batch_norm_options& options)
      : system_{&system},
        options_{resolve(make_sync_options(options), system.config())} {}

  /// Spawns a slave for each of `copies`, which owns its copy until it ends.
  void spawn(const replicas& copies, const sight& seen) {
    auto count = std::ssize(copies);
    master_ = count == 1 ? batch_norm_master_actor{}
                         : spawn_batch_norm_master(*system_, options_, count);
    auto relays = spawn_batch_norm_relays(*system_, master_, options_, count);
    for (std::int64_t i = 0; i < count; ++i) {
      detail::slave_role role;
      role.copy_id = i;
      role.master = seen(i == 0 ? master_ : relays->at(i), i);
      role.relays = i == 0 ? relays : nullptr;
      spawn(copies[static_cast<std::size_t>(i)], std::move(role));
    }
  }

  [[nodiscard]] const std::vector<batch_norm_slave_actor>& all() const {
    return all_;
  }

  /// Null if there is only one copy.
  [[nodiscard]] const batch_norm_master_actor& master() const {
    return master_;
  }

  /// Whether all know that they take part, or that they cannot.
  [[nodiscard]] bool are_answered() const {
    return are_ready(registered_);
  }

  /// Whether all take part, once `are_answered()`.
  [[nodiscard]] bool take_part() {
    auto answers = std::exchange(registered_, {});
    return std::ranges::all_of(answers, [](auto& x) { return !!x->get(); });
  }

  /// Tells all to end, in any order.
  void end(std::mt19937& random) {
    std::ranges::shuffle(all_, random);
    for (const auto& x : all_)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    master_ = nullptr;
    all_.clear();
  }

  /// Whether all have given their copies back.
  [[nodiscard]] bool have_ended() const {
    return are_ready(ended_);
  }

private:
  using result = future_result<bool>;
  using results = std::vector<std::shared_ptr<result>>;

  static bool are_ready(const results& some) {
    return std::ranges::all_of(some, [](auto& x) { return x->is_ready(); });
  }

  static std::shared_ptr<future_writer<bool>> writer(results& to) {
    to.push_back(std::make_shared<result>());
    return std::make_shared<future_writer<bool>>(to.back());
  }

  void spawn(const std::shared_ptr<batch_norm_replica>& copy,
             detail::slave_role role) {
    role.deadline = *options_.deadline;
    role.registered = writer(registered_);
    role.ended = writer(ended_);
    all_.push_back(
        system_->spawn<detail::batch_norm_slave>(copy, std::move(role)));
  }

  caf::actor_system* system_;
  sync_options options_;
  batch_norm_master_actor master_;
  std::vector<batch_norm_slave_actor> all_;
  results registered_, ended_;
};

} // namespace syncnorm::test
