#pragma once

#include <cstdint>

namespace pipeline::test {

/// False under sanitizers, which bring allocation functions of their own.
extern const bool counts_live_memory;

/// Bytes that this program has allocated by `new` and not freed.
[[nodiscard]] std::int64_t live_memory();

} // namespace pipeline::test
