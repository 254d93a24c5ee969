#pragma once

#include <cstddef>

// The limit: what memory itself takes, with the widest vectors of this CPU.

namespace syncnorm::bench {

/// Reads n floats. Returns their sum, so that no read is optimized away.
float read_memory(const float* from, std::size_t n);

/// Copies n floats through the caches.
void copy_memory(float* to, const float* from, std::size_t n);

/// Copies n floats past the caches; `to` is aligned to 64 bytes.
void copy_memory_streamed(float* to, const float* from, std::size_t n);

} // namespace syncnorm::bench
