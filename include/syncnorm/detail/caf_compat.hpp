#pragma once

// One spelling for CAF 0.17.6 and 1.x. The files included here, and
// `caf/command_line.hpp`, are the only ones that know CAF's versions.

#include "syncnorm/detail/caf/answer_any.hpp"
#include "syncnorm/detail/caf/configure.hpp"
#include "syncnorm/detail/caf/error.hpp"
#include "syncnorm/detail/caf/inspect.hpp"
#include "syncnorm/detail/caf/inspect_raw.hpp"
#include "syncnorm/detail/caf/lent_thread.hpp"
#include "syncnorm/detail/caf/line.hpp"
#include "syncnorm/detail/caf/log.hpp"
#include "syncnorm/detail/caf/monitor.hpp"
#include "syncnorm/detail/caf/round_instruments.hpp"
#include "syncnorm/detail/caf/send.hpp"
#include "syncnorm/detail/caf/typed_actor.hpp"
#include "syncnorm/detail/caf/worker.hpp"
