#pragma once

namespace syncnorm::train {

/// From now on the first Ctrl-C (SIGINT, or SIGTERM) asks the program to stop
/// after the current step; another one, a second later or more, ends it at
/// once. What comes sooner is the same request, of which a terminal and a
/// launcher both tell.
void catch_stop_signals();

/// A file that grows over its limit, or a pipe that nobody reads any more, is
/// from now on an error of the writer's, not a signal.
void ignore_write_signals();

/// Whether it was asked.
[[nodiscard]] bool stop_requested() noexcept;

} // namespace syncnorm::train
