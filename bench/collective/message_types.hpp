#pragma once

#include "syncnorm/message_types.hpp"

#include <cstdint>

CAF_BEGIN_TYPE_ID_BLOCK(syncnorm_bench, caf::first_custom_type_id)

CAF_ADD_ATOM(syncnorm_bench, syncnorm::bench, run_atom, "run")
CAF_ADD_ATOM(syncnorm_bench, syncnorm::bench, gather_atom, "gather")
CAF_ADD_ATOM(syncnorm_bench, syncnorm::bench, scatter_atom, "scatter")

CAF_END_TYPE_ID_BLOCK(syncnorm_bench)
