#pragma once

#include "stream_ends.hpp"
#include "tensor_staging.hpp"

#include "syncnorm/actors.hpp"
#include "syncnorm/batch_norm_master.hpp"
#include "syncnorm/batch_norm_replica.hpp"
#include "syncnorm/detail/learned_statistics.hpp"
#include "syncnorm/future_result.hpp"
#include "syncnorm/slave_pipe.hpp"
#include "syncnorm/tensor_pool.hpp"

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace syncnorm::detail {

/// The role of a slave actor: one copy among others.
struct slave_role {
  /// The actor it registers with: the master or a relay. Null if there is only
  /// one copy.
  batch_norm_master_actor master;
  /// Of copy 0 only: they end when it does.
  std::shared_ptr<batch_norm_relays> relays;
  std::int64_t copy_id = 0;
  /// How long to wait for a device.
  caf::timespan deadline{};
  /// Written when the actor takes part.
  std::shared_ptr<future_writer<bool>> registered;
  /// Written when the actor has ended.
  std::shared_ptr<future_writer<bool>> ended;
};

/// The answer to a request for something that threw `reason`.
[[nodiscard]] caf::error to_answer(const std::exception& reason);

/// The actor of one copy of a batch-norm layer. That of copy 0 leads the
/// rounds, and ends the master when it ends itself.
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
  /// Answers a request for one batch, or for several together.
  using forward_promise =
      std::variant<caf::typed_response_promise<shared_tensor, std::uint64_t>,
                   caf::typed_response_promise<shared_tensors, std::uint64_t>>;

  struct forward_job {
    std::vector<shared_tensor> xs;
    forward_promise promise;
    /// Whether a backward pass may follow: set when the pass starts, as
    /// evaluation may be requested before it ends.
    bool trains = false;
    /// On a device: what its kernels use.
    std::shared_ptr<const void> memory{};
    /// The moments of xs, if they were taken ahead.
    std::optional<batch_norm_message> measured{};
    /// The output of each of xs.
    std::vector<tensor_memory> ys{};
    /// On a device: where each of ys goes.
    std::vector<way_back> backs{};
    /// On a device: the statistics before this pass, once it has learned.
    std::optional<learned_statistics> before{};
    std::vector<batch_norm_tape> tapes{};
  };

  /// What a backward pass needs from its forward pass.
  struct kept {
    shared_tensor x;
    batch_norm_tape tape;
  };

  struct backward_job {
    std::uint64_t pass_id = 0;
    shared_tensor dy;
    caf::typed_response_promise<shared_tensor> promise;
    std::shared_ptr<const void> memory{};
    /// On a device: where dx goes.
    way_back back{};
    /// Its forward pass, while it waits for the other copies.
    kept pass{};
    /// As for a forward pass.
    std::optional<learned_statistics> before{};
  };

  using job = std::variant<forward_job, backward_job>;
  using job_ptr = std::shared_ptr<job>;

  void take_part();
  void end_master(const caf::error& reason);

  // One pass at a time: the master expects a replica's rounds in order.
  void push(job x);
  void next();
  void start_next();
  /// Whether the other copies wait for this one to take part.
  [[nodiscard]] bool joins_round(const forward_job& x) const;
  [[nodiscard]] bool joins_round(const backward_job& x) const;
  void start(const job_ptr& at, forward_job& x);
  void start(const job_ptr& at, backward_job& x);
  [[nodiscard]] batch_norm_message measure(const forward_job& x);
  void forward_alone(forward_job& x);
  void end_forward(const job_ptr& at, const batch_norm_reply& reply);
  void finish(const job_ptr& at);
  void answer(forward_job& x);
  /// On a device: the pass is about to learn.
  void remember(std::optional<learned_statistics>& before);
  /// For a pass that cannot be answered: takes back what it learned.
  void refuse(forward_job& x, const caf::error& reason);
  void refuse(backward_job& x, const caf::error& reason);
  void finish_backward(const job_ptr& at, const tensor_memory& dx);
  void drop(job& x, const caf::error& reason);

  // On the CPU: while one pass waits for the other copies, the moments of the
  // next pass are taken, and the next pass's round begins before this pass's y
  // is made. So no time is lost on the way to the master and back.
  void look_ahead();
  void start_ahead();
  [[nodiscard]] forward_job* next_forward() const;

  /// On a device: brings `x` there, if it is in host memory.
  [[nodiscard]] way_back bring_here(shared_tensor& x);
  /// Enqueues the copy of `y` to host memory, if it goes there.
  /// @param keep the memory that the stream's work needs.
  /// @returns `keep`, and what the copy needs.
  [[nodiscard]] std::shared_ptr<const void>
  send_back(const tensor_memory& y, way_back& back,
            std::shared_ptr<const void> keep);
  /// `y`, or its copy in host memory.
  [[nodiscard]] shared_tensor answer_of(const tensor_memory& y, way_back& back);
  [[nodiscard]] shared_tensor answer_of(forward_job& x, std::size_t i);

  /// Memory for y or dx.
  [[nodiscard]] tensor_memory make_output(const tensor_layout& layout);

  using on_reply = std::function<void(const batch_norm_reply&)>;

  /// Sends `message` into the next round; then calls `done(reply)`.
  void exchange(const job_ptr& at, batch_norm_message message, on_reply done);
  void contribute();
  void contribute(const batch_norm_message& message);
  void contribute_from_host();
  void go_on(const batch_norm_reply& reply);
  void stop(const caf::error& reason);
  /// Ends the exchange of the current pass, and begins the next.
  template <class F>
  void leave_exchange(F f);

  // -- the end of the stream's work -------------------------------------------

  // A device lags behind what was enqueued. So that the statistics hold only
  // what was answered, a pass that is not answered takes back what it learned;
  // a pass whose work has failed also ends the passes behind it.

  [[nodiscard]] bool on_device() const noexcept {
    return replica_->options().where.type != device_type::cpu;
  }

  /// Keeps `tensors` together, on a device.
  [[nodiscard]] std::shared_ptr<const void>
  hold(std::vector<shared_tensor> tensors) const;
  [[nodiscard]] std::shared_ptr<const void> hold(const forward_job& x) const;
  void keep_until_done(std::shared_ptr<const void> memory);

  /// Calls `then` when the stream has done what is enqueued; on the CPU, at
  /// once.
  /// @param keep the memory that the stream needs until then.
  void when_done(std::shared_ptr<const void> keep, stream_ends::on_end then);
  /// The work enqueued under that id has failed.
  void work_failed(std::uint64_t work, const caf::error& reason);

  /// The error that the master has answered; if it says that the master is
  /// gone, the layer is added. An error of CAF's own also means that the master
  /// is gone: this slave is there.
  [[nodiscard]] caf::error from_master(const caf::error& reason) const;
  caf::result<sync_metrics> metrics();
  /// Answers the request of that number.
  template <class T>
  void answer_question(std::uint64_t number, T&& x);
  void give_up(const std::string& why);

  caf::result<double_array> read_state(const std::string& name);
  caf::result<void> write_state(const std::string& name,
                                const double_array& values);
  caf::result<void> forget(std::uint64_t pass_id);
  caf::result<double_array> read_from_device(const std::string& name);
  caf::result<void> write_to_device(const std::string& name,
                                    const double_array& values);

  [[nodiscard]] caf::error no_such_array(const std::string& name) const;
  [[nodiscard]] caf::error wrong_size(const std::string& name, std::size_t size,
                                      const double_array& values) const;
  [[nodiscard]] caf::error no_counter(const std::string& name,
                                      const double_array& values) const;

  std::shared_ptr<batch_norm_replica> replica_;
  slave_role role_;
  std::optional<slave_pipe<batch_norm_message, batch_norm_reply>> pipe_;

  tensor_pool pool_;
  /// From passes that are done, kept for their memory.
  std::vector<batch_norm_tape> used_tapes_;
  std::deque<job_ptr> jobs_;
  /// The pass that waits for the other copies, its message, and what to do with
  /// the reply.
  job_ptr current_;
  batch_norm_message sent_;
  on_reply done_;
  /// On a device: why the reply comes too late.
  caf::error overtaken_;
  std::uint64_t last_pass_id_ = 0;
  /// Open requests for the master's metrics.
  std::map<std::uint64_t, caf::typed_response_promise<sync_metrics>> questions_;
  std::uint64_t last_question_ = 0;
  std::map<std::uint64_t, kept> kept_;

  /// On a device: what to do when its work ends.
  std::optional<stream_ends> ends_;
  /// Whether values go through host memory.
  bool host_only_ = false;
  pinned_memory pinned_;
  std::shared_ptr<tensor_staging> staging_;
};

} // namespace syncnorm::detail
