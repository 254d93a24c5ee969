#pragma once

#include "syncnorm/shared_tensor.hpp"

#include <cstddef>

namespace syncnorm {

namespace detail {

class block_stack;

} // namespace detail

/// Host memory for tensors in a row: a tensor's memory is reused when the last
/// message that shares it is gone, wherever that happens. Fresh memory would
/// cost a page fault for each 4 KiB, which is more than the normalization
/// itself.
///
/// A returned block waits for the next `take` of about its size; a `take` of
/// another size frees waiting blocks until one fits, so take tensors of one
/// size from a pool. At most `max_idle` blocks wait. Tensors outlive their
/// pool.
class tensor_pool {
public:
  /// The maximum number of blocks that wait to be reused.
  static constexpr std::size_t max_idle = 64;

  /// An empty pool.
  tensor_pool();

  /// Takes over all blocks; the other pool may only be destroyed.
  tensor_pool(tensor_pool&&) noexcept;
  tensor_pool& operator=(tensor_pool&&) = delete;

  /// Frees the waiting blocks.
  ~tensor_pool();

  /// Memory for a tensor of `layout`, but without gaps between samples, in host
  /// memory, aligned to 64 bytes; its content is unspecified. Only one thread
  /// at a time.
  /// @throws error as `make_layout`.
  [[nodiscard]] tensor_memory take(const tensor_layout& layout);

  /// How many blocks wait now.
  [[nodiscard]] std::size_t idle() const noexcept;

private:
  detail::block_stack* blocks_;
};

} // namespace syncnorm
