#pragma once

#include "records.hpp"

#include <syncnorm/actors.hpp>
#include <syncnorm/compat.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What the actors of the pipeline say to each other:
//
//   source ──batch──▶ normalizer ──batch──▶ score ──scores──▶ sink
//     ▲                 │  ▲                                   │
//     │             forward, y                                 │
//     │                 ▼  │                                   │
//     │              R slave actors ◀──▶ master                │
//     └───────────────────────credit──────────────────────────┘
//
// A batch is sent when there is credit for it; the sink gives credit back. So
// at most a fixed number of batches are ever in flight.

namespace pipeline {

/// Records in flight; batches are numbered from 0. The tensors are shared,
/// never copied; after the scatter stage, there is one for each slave actor.
struct batch {
  std::uint64_t number = 0;
  std::vector<syncnorm::shared_tensor> parts;
};

/// What became of the stream. It travels after the last batch, and each stage
/// adds what it knows.
struct totals {
  record_counts records;
  std::uint64_t batches = 0;
  /// The most batches in flight at a time.
  std::uint64_t peak_in_flight = 0;
  /// How many times the slave actors were started anew.
  std::uint64_t recoveries = 0;
  /// Records that were read but did not come out, because of the failure.
  std::uint64_t records_lost = 0;
  std::uint64_t records_out = 0;
  /// A stage has died: the other stages' counts are gone with them.
  bool died = false;
  /// Why the stream ended early; empty if it did not.
  std::string failure;

  /// Keeps the first reason.
  void fail(std::string why) {
    if (failure.empty())
      failure = std::move(why);
  }
};

/// The slave actors, as the supervisor has started them.
struct crew {
  std::vector<syncnorm::batch_norm_slave_actor> slaves;
  /// The most batches to ask each slave for at once: they share their messages.
  std::size_t together = 16;
  /// Such groups in flight at a time: while one waits for the statistics of all
  /// slaves, the next is measured.
  std::size_t groups = 2;
};

} // namespace pipeline

// These types never leave the process.
CAF_BEGIN_TYPE_ID_BLOCK(pipeline, caf::first_custom_type_id)

CAF_ADD_TYPE_ID(pipeline, (pipeline::batch))
CAF_ADD_TYPE_ID(pipeline, (pipeline::totals))
CAF_ADD_TYPE_ID(pipeline, (pipeline::crew))
CAF_ADD_ATOM(pipeline, pipeline, start_atom, "start")
CAF_ADD_ATOM(pipeline, pipeline, credit_atom, "credit")
CAF_ADD_ATOM(pipeline, pipeline, stop_atom, "stop")
CAF_ADD_ATOM(pipeline, pipeline, batch_atom, "batch")
CAF_ADD_ATOM(pipeline, pipeline, scores_atom, "scores")
CAF_ADD_ATOM(pipeline, pipeline, end_atom, "end")
CAF_ADD_ATOM(pipeline, pipeline, crew_atom, "crew")
CAF_ADD_ATOM(pipeline, pipeline, recover_atom, "recover")
CAF_ADD_ATOM(pipeline, pipeline, dismiss_atom, "dismiss")

CAF_END_TYPE_ID_BLOCK(pipeline)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pipeline::batch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pipeline::totals)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pipeline::crew)

namespace pipeline {

/// A stage that takes batches.
using stage_actor = syncnorm::compat::typed_actor<
    /// From the stage before, in the order of the numbers.
    caf::result<void>(batch_atom, batch),

    /// From the stage before, at the end: what became of the stream.
    caf::result<void>(end_atom, totals)>;

/// The sink.
using sink_actor = syncnorm::compat::typed_actor<
    /// From the stage before, in order: the batch's number, one score per
    /// record.
    caf::result<void>(scores_atom, std::uint64_t, syncnorm::double_array),
    caf::result<void>(end_atom, totals)>;

/// The source.
using source_actor = syncnorm::compat::typed_actor<
    /// Once: read, and send batches to that actor.
    caf::result<void>(start_atom, caf::actor),

    /// From the sink, once for each batch that it is done with.
    caf::result<void>(credit_atom),

    /// From a stage that has failed, with the reason: stop reading, send the
    /// end.
    caf::result<void>(stop_atom, std::string)>;

/// Starts slave actors, and starts them anew when one has died.
using supervisor_actor = syncnorm::compat::typed_actor<
    /// From anybody, until the slaves are dismissed. Answered with the current
    /// slaves.
    caf::result<crew>(crew_atom),

    /// From the normalizer, when no request to a slave is open. Answered with
    /// new slave actors that have seen all batches that every old one has
    /// answered.
    caf::result<crew>(recover_atom),

    /// From the sink, when the stream has ended without failure: end the
    /// slaves, save the state. Answered with why that failed, or with an empty
    /// text.
    caf::result<std::string>(dismiss_atom)>;

} // namespace pipeline
