#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/batch_norm_master.hpp"
#include "syncnorm/batch_norm_replica.hpp"
#include "syncnorm/future_result.hpp"
#include "syncnorm/slave_pipe.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

namespace syncnorm::detail {

/// What a slave actor is: one copy among others.
struct slave_role {
  /// Null if there is one copy only.
  batch_norm_master_actor master;
  std::int64_t copy_id = 0;
  /// Told when the actor takes part.
  std::shared_ptr<future_writer<bool>> registered;
  /// Told when the actor has ended.
  std::shared_ptr<future_writer<bool>> ended;
};

/// The actor of one copy of a batch-norm layer. Copy 0's leads the rounds, and
/// ends the master when it ends.
class batch_norm_slave : public batch_norm_slave_actor::base {
public:
  using super = batch_norm_slave_actor::base;

  batch_norm_slave(caf::actor_config& config,
                   std::shared_ptr<batch_norm_replica> replica,
                   slave_role role);

  const char* name() const override;
  void on_exit() override;
  behavior_type make_behavior() override;

private:
  struct forward_job {
    shared_tensor x;
    caf::typed_response_promise<shared_tensor, std::uint64_t> promise;
  };

  struct backward_job {
    std::uint64_t ticket = 0;
    shared_tensor dy;
    caf::typed_response_promise<shared_tensor> promise;
  };

  /// What a backward pass needs of its forward pass.
  struct kept {
    shared_tensor x;
    batch_norm_tape tape;
  };

  using job = std::variant<forward_job, backward_job>;
  using job_ptr = std::shared_ptr<job>;

  void take_part();

  // One pass at a time: the master expects a replica's rounds in order.
  void push(job x);
  void next();
  void start(const job_ptr& at, forward_job& x);
  void start(const job_ptr& at, backward_job& x);
  void finish(forward_job& x, const tensor_memory& y, batch_norm_tape tape);
  void refuse(job& x, const std::exception& reason);

  /// Sends `message` into the next round; goes on with `done(reply)`.
  template <class Done>
  void exchange(const job_ptr& at, batch_norm_message message, Done done);

  void give_up(const std::string& why);

  caf::result<double_array> read_state(const std::string& name);
  caf::result<void> write_state(const std::string& name,
                                const double_array& values);
  caf::result<void> forget(std::uint64_t ticket);

  std::shared_ptr<batch_norm_replica> replica_;
  slave_role role_;
  std::optional<slave_pipe<batch_norm_message, batch_norm_reply>> pipe_;

  std::deque<job_ptr> jobs_;
  /// The pass that waits for the other copies.
  job_ptr current_;
  std::uint64_t last_ticket_ = 0;
  std::map<std::uint64_t, kept> kept_;
};

} // namespace syncnorm::detail
