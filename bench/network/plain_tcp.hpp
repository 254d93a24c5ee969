#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace syncnorm::bench {

/// The two ends of a TCP connection on 127.0.0.1.
std::pair<int, int> connect_plainly();

/// Transfers all of `bytes`. @throws std::runtime_error if the connection ends.
void write_all(int socket, std::span<const std::byte> bytes);
void read_all(int socket, std::span<std::byte> bytes);

/// Sends an array and waits for the answer: its last element or, if asked for,
/// its sum.
double send_plainly(int socket, std::span<const float> values, bool want_sum);

/// Answers `send_plainly` until the connection ends.
void answer_plainly(int socket);

} // namespace syncnorm::bench
