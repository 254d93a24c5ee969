#pragma once

namespace syncnorm::train {

/// From now on the first Ctrl-C (SIGINT, or SIGTERM) asks the program to stop
/// after the current step; another one, a second later or more, ends it at
/// once. A signal that comes sooner is the same request, which a terminal and a
/// launcher both send.
void catch_stop_signals();

/// From now on, a file that grows over its limit, or a pipe that nobody reads
/// any more, gives the writer an error, not a signal.
void ignore_write_signals();

/// Whether the program was asked to stop.
[[nodiscard]] bool stop_requested() noexcept;

} // namespace syncnorm::train
