#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace syncnorm {

struct sync_options;

/// A message and the participant that it comes from or goes to: 0 is the owner,
/// others are slaves.
template <class T>
struct identified {
  /// The participant.
  std::int64_t identifier = 0;
  /// What it sent, or gets.
  T message{};
};

/// What a master does with a round's messages: they come in as the master's
/// first, then the slaves' in the order of their identifiers; out comes one
/// reply for each identifier, in any order. It may move from the messages. What
/// it throws becomes the error of every participant: a `syncnorm::error` with
/// its own code and its text behind layer and round, anything else, and one of
/// the code `none`, `callback_failed`.
///
/// Threads: a master calls it once a round, never twice at a time, on one of
/// CAF's workers, on the thread that receives from other nodes, or inside the
/// call by which a thread of this process sends into the round, not only the
/// last one: that call then takes as long as the callback, whatever its
/// timeout. It must not wait for its own master, by `nr_slaves`,
/// `register_slave`, `run_master` and the like: that would wait for itself.
template <class In, class Out>
using sync_callback = std::function<std::vector<identified<Out>>(
    std::span<identified<In>> messages)>;

/// What a master does with a round's messages if its replicas may stand behind
/// relays: merges them along the tree, and answers everybody the same. What the
/// functions throw becomes the error of every participant, as a
/// `sync_callback`'s. They run where a callback does, also on the thread that
/// receives from other nodes (`use_network`): they must not wait for anything.
/// What they take counts for those behind a relay,
/// which waits for its answer until 0.9 s after the round's deadline; then the
/// round fails with `deadline_exceeded` there, and the next one for all others.
template <class In, class Out>
struct sync_reduction {
  /// Makes one message of several, one or more in the order of their
  /// identifiers, along the tree; see `fold_tree`. It may move from them. A
  /// relay calls it too, for the replicas of one node.
  std::function<In(std::span<identified<In>> parts)> merge;
  /// Makes the reply of what all were merged into.
  std::function<Out(In total)> finish;
  /// How many replicas take part, the owner included; a round of others fails
  /// at once, unless it goes on with the survivors. `sync_options` has a number
  /// that is waited for instead: this one is for replicas that have all
  /// registered before the first round, and after a failure are of no more use.
  /// 0: any number.
  std::int64_t participants = 0;
};

namespace detail {

/// @throws error `invalid_argument` if a reduction for so many participants
///         cannot be that of a master with those options.
void check_participants(const sync_options& options, std::int64_t participants);

} // namespace detail

} // namespace syncnorm
