#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/message_types.hpp"

CAF_BEGIN_TYPE_ID_BLOCK(syncnorm_bench_network, caf::first_custom_type_id)

CAF_ADD_ATOM(syncnorm_bench_network, syncnorm::bench, run_atom, "nb_run")
CAF_ADD_ATOM(syncnorm_bench_network, syncnorm::bench, echo_atom, "nb_echo")
CAF_ADD_ATOM(syncnorm_bench_network, syncnorm::bench, join_atom, "nb_join")
CAF_ADD_ATOM(syncnorm_bench_network, syncnorm::bench, receiver_atom, "nb_recv")
CAF_ADD_ATOM(syncnorm_bench_network, syncnorm::bench, chunk_atom, "nb_chunk")
CAF_ADD_ATOM(syncnorm_bench_network, syncnorm::bench, total_atom, "nb_total")

CAF_END_TYPE_ID_BLOCK(syncnorm_bench_network)

namespace syncnorm::bench {

/// The master of the benchmark's rounds: sums of 2 * C float32.
using network_master = sync_master_actor<float_array, float_array>;

} // namespace syncnorm::bench
