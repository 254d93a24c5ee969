#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace syncnorm::train {

/// Has the allocator keep freed memory. Every step frees what the next one
/// allocates again, some of it in pieces that would go back to the system at
/// once. Each page of them would then cost a fault, during which the replicas
/// of a process get in each other's way.
void keep_freed_memory() noexcept;

/// The cores that this process may use, in order; empty if the system does not
/// say.
[[nodiscard]] std::vector<int> usable_cores();

/// A core for each of the `replicas` that compute on this machine, in any
/// process, if there are as many replicas as `cores`. With fewer replicas the
/// system finds better places, since others use the machine as well; with as
/// many, it needs help: otherwise two share a core at times while another one
/// is idle, and all wait for these two. Empty: let the system choose.
[[nodiscard]] std::vector<int> choose_cores(std::size_t replicas,
                                            const std::vector<int>& cores);

/// From now on the calling thread runs on these cores only.
void stay_on(const std::vector<int>& cores) noexcept;

/// Whether `host` is an address, or a name whose address is known.
[[nodiscard]] bool is_known_host(const std::string& host);

/// Returns the address of this machine from which a connection to `host` would
/// come, as a number; empty if no address leads there. Nothing is sent.
[[nodiscard]] std::string address_towards(const std::string& host);

} // namespace syncnorm::train
