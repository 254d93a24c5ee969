#include "syncnorm/tensor_pool.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <new>
#include <utility>

namespace syncnorm {

namespace detail {

/// Idle blocks of memory, to be used again: pushed from any thread, popped by
/// one. The stack lives until its pool and all blocks that came from it are
/// gone.
class block_stack {
public:
  void* pop(std::size_t bytes) {
    auto* memory = find(capacity_for(bytes));
    owners_.fetch_add(1, std::memory_order_relaxed);
    return memory;
  }

  void push(void* memory, std::size_t bytes) noexcept {
    auto* block = new (memory) idle_block{nullptr, capacity_for(bytes)};
    auto before = idle_.fetch_add(1, std::memory_order_relaxed);
    if (before >= tensor_pool::max_idle
        || closed_.load(std::memory_order_relaxed)) {
      idle_.fetch_sub(1, std::memory_order_relaxed);
      release(block);
    } else {
      block->next = top_.load(std::memory_order_relaxed);
      while (!top_.compare_exchange_weak(block->next, block,
                                         std::memory_order_release,
                                         std::memory_order_relaxed))
        ;
    }
    leave();
  }

  [[nodiscard]] std::size_t idle() const noexcept {
    return idle_.load(std::memory_order_relaxed);
  }

  /// The pool is gone: blocks that come back are freed.
  void close() noexcept {
    closed_.store(true, std::memory_order_relaxed);
    free_all();
    leave();
  }

private:
  struct idle_block {
    idle_block* next;
    std::size_t capacity;
  };

  static constexpr std::align_val_t alignment{64};

  /// Tensors of about the same size take blocks of the same size: sizes go in
  /// steps of a quarter of a power of two.
  static std::size_t capacity_for(std::size_t bytes) noexcept {
    auto step = std::max<std::size_t>(std::bit_floor(bytes) / 4, 64);
    return (bytes + step - 1) / step * step;
  }

  static void release(idle_block* block) noexcept {
    ::operator delete(block, alignment);
  }

  /// An idle block of that capacity, or a new one; frees idle ones of others.
  void* find(std::size_t capacity) {
    while (auto* block = pop_any()) {
      if (block->capacity == capacity)
        return block;
      release(block);
    }
    return ::operator new(capacity, alignment);
  }

  /// Nobody else pops, so what is below the top stays there.
  idle_block* pop_any() noexcept {
    auto* block = top_.load(std::memory_order_acquire);
    while (block != nullptr
           && !top_.compare_exchange_weak(block, block->next,
                                          std::memory_order_acquire,
                                          std::memory_order_acquire))
      ;
    if (block != nullptr)
      idle_.fetch_sub(1, std::memory_order_relaxed);
    return block;
  }

  void free_all() noexcept {
    while (auto* block = pop_any())
      release(block);
  }

  void leave() noexcept {
    if (owners_.fetch_sub(1, std::memory_order_acq_rel) != 1)
      return;
    free_all();
    delete this;
  }

  std::atomic<idle_block*> top_ = nullptr;
  std::atomic<std::size_t> idle_ = 0;
  std::atomic<bool> closed_ = false;
  /// Counts the pool and the blocks in use.
  std::atomic<std::size_t> owners_ = 1;
};

namespace {

/// What `std::allocate_shared` takes a tensor's memory from.
template <class T>
struct block_allocator {
  using value_type = T;

  explicit block_allocator(block_stack* from) noexcept : blocks{from} {}

  template <class U>
  block_allocator(const block_allocator<U>& x) noexcept : blocks{x.blocks} {}

  T* allocate(std::size_t n) {
    return static_cast<T*>(blocks->pop(n * sizeof(T)));
  }

  void deallocate(T* memory, std::size_t n) noexcept {
    blocks->push(memory, n * sizeof(T));
  }

  template <class U>
  bool operator==(const block_allocator<U>& x) const noexcept {
    return blocks == x.blocks;
  }

  block_stack* blocks;
};

} // namespace

} // namespace detail

tensor_pool::tensor_pool() : blocks_{new detail::block_stack} {}

tensor_pool::tensor_pool(tensor_pool&& x) noexcept
    : blocks_{std::exchange(x.blocks_, nullptr)} {}

tensor_pool::~tensor_pool() {
  if (blocks_ != nullptr)
    blocks_->close();
}

std::size_t tensor_pool::idle() const noexcept {
  return blocks_->idle();
}

tensor_memory tensor_pool::take(const tensor_layout& layout) {
  using line = tensor_memory::cache_line;
  auto whole = tensor_memory::without_gaps(layout, {});
  return tensor_memory{whole, std::allocate_shared_for_overwrite<line[]>(
                                  detail::block_allocator<line>{blocks_},
                                  tensor_memory::lines_for(whole))};
}

} // namespace syncnorm
