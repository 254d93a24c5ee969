#pragma once

// One spelling for CAF 0.17.6 and 1.x: the files of `detail/caf/` are the only
// headers that know CAF's versions. `command_line.hpp` there, for programs, is
// not among those included here.

#include "syncnorm/detail/caf/answer_any.hpp"
#include "syncnorm/detail/caf/configure.hpp"
#include "syncnorm/detail/caf/error.hpp"
#include "syncnorm/detail/caf/inspect.hpp"
#include "syncnorm/detail/caf/inspect_raw.hpp"
#include "syncnorm/detail/caf/lent_thread.hpp"
#include "syncnorm/detail/caf/line.hpp"
#include "syncnorm/detail/caf/log.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/detail/caf/monitor.hpp"
#include "syncnorm/detail/caf/round_instruments.hpp"
#include "syncnorm/detail/caf/send.hpp"
#include "syncnorm/detail/caf/typed_actor.hpp"
#include "syncnorm/detail/caf/worker.hpp"
