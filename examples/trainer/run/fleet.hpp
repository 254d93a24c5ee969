#pragma once

#include "trainer/plan/settings.hpp"
#include "trainer/run/host.hpp"
#include "trainer/run/messages.hpp"
#include "trainer/run/replica_group.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace syncnorm::train {

/// The processes of a run as its trainer sees them: this one, and those that
/// have joined it. The replicas of this process come first, then those of the
/// others: by the ranks that a launcher gave them, then in order of arrival.
class fleet {
public:
  using note_function = std::function<void(const std::string&)>;

  /// A run of this process alone.
  fleet(caf::actor_system& system, const settings& options,
        std::vector<replica_actor> own);

  /// Serves a run at `options.serve`, and waits until `options.workers`
  /// processes have joined it.
  /// @param identity see `run_identity`.
  /// @param note     is told where this process can be joined, whom it refused,
  ///                 and who is gone before all have come.
  /// @param stop     is asked while waiting whether to give up.
  /// @throws failure if the address is not available, or the processes did not
  ///         come within `options.patience`.
  fleet(caf::actor_system& system, const settings& options,
        std::vector<replica_actor> own, const std::string& identity,
        const note_function& note, const std::function<bool()>& stop);

  fleet(const fleet&) = delete;
  fleet& operator=(const fleet&) = delete;

  /// Ends the run, as a failure unless `end` was called.
  ~fleet();

  /// The replicas of all processes; the same object as long as this one lives.
  [[nodiscard]] replica_group& replicas() noexcept {
    return group_;
  }

  /// Number of processes, this one included.
  [[nodiscard]] std::size_t size() const noexcept {
    return others_.size() + 1;
  }

  /// Whether a process has come, wants to leave or is gone since `update`.
  [[nodiscard]] bool has_changed() const noexcept;

  /// After a failure: processes that no longer answer no longer take part.
  void drop_silent();

  /// After a failure with all processes still answering: those of `culprits` no
  /// longer take part, unless one of the culprits is in this process.
  void drop(const std::vector<culprit>& culprits);

  /// Adds the processes that have come, removes those that are gone. Then the
  /// replicas must be assembled anew.
  /// @returns a line for each: "process 2 (host:4711, 2 replicas) has joined".
  std::vector<std::string> update();

  /// Tells all processes that the run has ended, and waits for them to go.
  void end(bool good, const std::string& text);

private:
  /// By number: "process 2 (host:4711, 2 replicas) is gone".
  using gone_processes = std::map<std::uint64_t, std::string>;

  std::vector<process_entry> call_roll(std::uint64_t count,
                                       caf::timespan patience);
  void publish();
  void print_refusals();
  void dismiss(std::uint64_t number, const std::string& why);
  /// Answers the processes that have left; most of them wait for that.
  void dismiss_gone(const std::vector<process_entry>& roll);
  std::vector<process_entry> await_others(const std::function<bool()>& stop);
  /// Reports each process that is gone, once.
  void note_gone(const std::vector<process_entry>& roll, gone_processes& told);
  void regroup();

  caf::actor_system& system_;
  settings options_;
  std::vector<replica_actor> own_;
  std::vector<process_entry> others_;
  change_count changes_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::uint64_t seen_ = 0;
  note_function note_;
  host_actor host_;
  caf::actor doorkeeper_;
  replica_group group_;
};

} // namespace syncnorm::train
