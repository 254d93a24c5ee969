#include "kept_memory.hpp"

#include <atomic>
#include <utility>

namespace syncnorm::detail {

struct kept_memory::node {
  std::shared_ptr<const void> memory;
  node* next = nullptr;
};

kept_memory::kept_memory(std::shared_ptr<const void> memory)
    : node_{std::make_unique<node>(node{std::move(memory)})} {}

void kept_memory::let_go() noexcept {
  node_.reset();
}

kept_memory::~kept_memory() {
  static std::atomic<node*> all{nullptr};
  auto* mine = node_.release();
  if (mine == nullptr)
    return;
  mine->next = all.load();
  while (!all.compare_exchange_weak(mine->next, mine)) {
    // Another thread's node came first.
  }
}

} // namespace syncnorm::detail
