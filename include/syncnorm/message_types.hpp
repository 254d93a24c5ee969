#pragma once

#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/detail/reply_slot.hpp"
#include "syncnorm/detail/stream_work.hpp"
#include "syncnorm/shared_array.hpp"
#include "syncnorm/shared_tensor.hpp"
#include "syncnorm/sync_metrics.hpp"

#include <cstdint>
#include <vector>

namespace syncnorm {

/// Marks a slave's message: who sent it and to which round it belongs.
struct round_tag {
  /// Hash of the layer's name.
  std::uint64_t layer = 0;
  /// The master's generation in which the slave registered.
  std::uint64_t generation = 0;
  /// Counts the rounds of a generation, from 1.
  std::uint64_t round = 0;
  /// The slave's identifier: 1 or more.
  std::int64_t identifier = 0;

  friend bool operator==(const round_tag&, const round_tag&) = default;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, round_tag& x) {
  return detail::inspect_object(f, x, "syncnorm::round_tag",
                                detail::field("layer", x.layer),
                                detail::field("generation", x.generation),
                                detail::field("round", x.round),
                                detail::field("identifier", x.identifier));
}

/// The master's answer to a registration: everything that a `slave_pipe` must
/// know.
struct slave_ticket {
  /// The tag of the slave's first message.
  round_tag first;
  /// How long a round may take.
  caf::timespan deadline{};
  /// Whether a round goes on without the participants at fault.
  bool survivors = false;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, slave_ticket& x) {
  return detail::inspect_object(f, x, "syncnorm::slave_ticket",
                                detail::field("first", x.first),
                                detail::field("deadline", x.deadline),
                                detail::field("survivors", x.survivors));
}

/// What a relay sends to its parent: the messages of its replicas, merged as
/// far as the tree over all identifiers allows.
struct relay_parts {
  /// Time since the first of its replicas sent its message.
  caf::timespan waited{};
  /// The first replica of each part, ascending.
  std::vector<std::int64_t> first;
  /// The parts, of the type of a slave's message.
  caf::message values;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, relay_parts& x) {
  return detail::inspect_object(
      f, x, "syncnorm::relay_parts", detail::field("waited", x.waited),
      detail::field("first", x.first), detail::field("values", x.values));
}

} // namespace syncnorm

/// Applications register this block besides their own, for example by
/// `CAF_MAIN(caf::id_block::syncnorm, ...)`. It takes the identifiers from
/// `first_custom_type_id + 100` to `+ 199`.
CAF_BEGIN_TYPE_ID_BLOCK(syncnorm, caf::first_custom_type_id + 100)

CAF_ADD_TYPE_ID(syncnorm, (syncnorm::errc))
CAF_ADD_TYPE_ID(syncnorm, (syncnorm::round_tag))
CAF_ADD_TYPE_ID(syncnorm, (syncnorm::slave_ticket))
CAF_ADD_TYPE_ID(syncnorm, (syncnorm::float_array))
CAF_ADD_TYPE_ID(syncnorm, (syncnorm::double_array))
CAF_ADD_TYPE_ID(syncnorm, (syncnorm::detail::reply_slot))

CAF_ADD_ATOM(syncnorm, syncnorm, register_slave_atom, "sn_regist")
CAF_ADD_ATOM(syncnorm, syncnorm, run_slave_atom, "sn_slave")
CAF_ADD_ATOM(syncnorm, syncnorm, run_master_atom, "sn_master")
CAF_ADD_ATOM(syncnorm, syncnorm, nr_slaves_atom, "sn_count")
CAF_ADD_ATOM(syncnorm, syncnorm, give_up_atom, "sn_giveup")
CAF_ADD_ATOM(syncnorm, syncnorm, check_deadline_atom, "sn_check")

CAF_ADD_TYPE_ID(syncnorm, (syncnorm::batch_norm_message))
CAF_ADD_TYPE_ID(syncnorm, (syncnorm::batch_norm_reply))
CAF_ADD_TYPE_ID(syncnorm, (syncnorm::shared_tensor))

CAF_ADD_ATOM(syncnorm, syncnorm, forward_atom, "sn_forward")
CAF_ADD_ATOM(syncnorm, syncnorm, backward_atom, "sn_backwar")
CAF_ADD_ATOM(syncnorm, syncnorm, forget_atom, "sn_forget")
CAF_ADD_ATOM(syncnorm, syncnorm, train_atom, "sn_train")
CAF_ADD_ATOM(syncnorm, syncnorm, read_state_atom, "sn_read")
CAF_ADD_ATOM(syncnorm, syncnorm, write_state_atom, "sn_write")

CAF_ADD_TYPE_ID(syncnorm, (syncnorm::sync_metrics))
CAF_ADD_ATOM(syncnorm, syncnorm, get_metrics_atom, "sn_metrics")
CAF_ADD_TYPE_ID(syncnorm, (syncnorm::relay_parts))

CAF_ADD_ATOM(syncnorm, syncnorm, register_relay_atom, "sn_regrel")
CAF_ADD_ATOM(syncnorm, syncnorm, run_relay_atom, "sn_relay")
CAF_ADD_ATOM(syncnorm, syncnorm, round_failed_atom, "sn_failed")
CAF_ADD_ATOM(syncnorm, syncnorm, report_late_atom, "sn_late")

CAF_ADD_TYPE_ID(syncnorm, (syncnorm::detail::stream_work))
CAF_ADD_ATOM(syncnorm, syncnorm, await_stream_atom, "sn_await")

CAF_ADD_TYPE_ID(syncnorm, (syncnorm::shared_tensors))
CAF_ADD_ATOM(syncnorm, syncnorm, zero_gradients_atom, "sn_zero")

CAF_END_TYPE_ID_BLOCK(syncnorm)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(syncnorm::detail::reply_slot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(syncnorm::detail::stream_work)
