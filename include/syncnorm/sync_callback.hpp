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
  /// What the participant sent or gets.
  T message{};
};

/// What a master does with a round's messages. The owner's message comes first,
/// then the slaves' in the order of their identifiers; the result is one reply
/// for each identifier, in any order. The callback may move from the messages.
/// What it throws becomes the error of every participant: a `syncnorm::error`
/// keeps its code, and its text follows layer and round; anything else, or an
/// error with the code `none`, becomes `callback_failed`.
///
/// Threads: a master calls it once per round, never twice at the same time, on
/// one of CAF's workers, on the thread that receives from other nodes, or
/// inside a call by which a thread of this process sends into the round (not
/// only the last such call). That call then takes as long as the callback,
/// whatever its timeout. The callback must not wait for its own master, by
/// `nr_slaves`, `register_slave`, `run_master` and the like: it would wait for
/// itself.
template <class In, class Out>
using sync_callback = std::function<std::vector<identified<Out>>(
    std::span<identified<In>> messages)>;

/// What a master does with a round's messages if its replicas may stand behind
/// relays: merges them along the tree, and gives all participants the same
/// reply. What the functions throw becomes the error of every participant, as
/// with a `sync_callback`. They run where a callback does, including the thread
/// that receives from other nodes (`use_network`), so they must not wait for
/// anything. Their running time counts for participants behind a relay: the
/// relay waits for its answer until 0.9 s after the round's deadline. After
/// that, the round fails with `deadline_exceeded` for these participants, and
/// the next one for all others.
template <class In, class Out>
struct sync_reduction {
  /// Merges messages, one or more in the order of their identifiers, into one
  /// along the tree; see `fold_tree`. It may move from them. A relay calls it
  /// too, for the replicas of one node of the tree.
  std::function<In(std::span<identified<In>> parts)> merge;
  /// Makes the reply from the message that all were merged into.
  std::function<Out(In total)> finish;
  /// How many replicas take part, the owner included; a round of another number
  /// fails at once, unless it goes on with the survivors. For the number in
  /// `sync_options`, in contrast, the master waits. This one is for replicas
  /// that have all registered before the first round and cannot be used again
  /// after a failure. 0: any number.
  std::int64_t participants = 0;
};

namespace detail {

/// @throws error `invalid_argument` if a master with these options cannot have
///         a reduction for that many participants.
void check_participants(const sync_options& options, std::int64_t participants);

} // namespace detail

} // namespace syncnorm
