#pragma once

#include "syncnorm/shared_tensor.hpp"

#include <cstddef>

namespace syncnorm {

namespace detail {

class block_stack;

} // namespace detail

/// Host memory for tensors that follow each other: a tensor's memory is used
/// again when the last message that shares it is gone, wherever that happens.
/// Fresh memory would cost a page fault for each 4 KiB, more than the
/// normalization itself.
///
/// What is given back waits for the next `take` of about its size; one of
/// another size frees what waits until something fits, so take tensors of one
/// size from a pool. At most `max_idle` blocks wait. Tensors outlive their
/// pool.
class tensor_pool {
public:
  /// How many blocks wait at most to be used again.
  static constexpr std::size_t max_idle = 64;

  /// An empty pool.
  tensor_pool();

  /// Takes over all blocks; the other pool may only be destroyed.
  tensor_pool(tensor_pool&&) noexcept;
  tensor_pool& operator=(tensor_pool&&) = delete;

  /// Frees what waits.
  ~tensor_pool();

  /// Memory for a tensor as `layout`, but with samples without gaps, in host
  /// memory, aligned to 64 bytes; its content is unspecified. One thread at a
  /// time.
  /// @throws error as `make_layout`.
  [[nodiscard]] tensor_memory take(const tensor_layout& layout);

  /// How many blocks wait now.
  [[nodiscard]] std::size_t idle() const noexcept;

private:
  detail::block_stack* blocks_;
};

} // namespace syncnorm
