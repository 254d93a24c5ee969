#pragma once

#include <memory>

namespace syncnorm::detail {

/// Memory for which a device has been given work, while it is not yet sure that
/// anybody learns when the work is done. Memory not let go before this object
/// ends is never freed: the device may use it at any time.
class kept_memory {
public:
  explicit kept_memory(std::shared_ptr<const void> memory);
  kept_memory(const kept_memory&) = delete;
  kept_memory& operator=(const kept_memory&) = delete;
  ~kept_memory();

  /// Somebody else keeps the memory until the work is done.
  void let_go() noexcept;

private:
  struct node;

  /// Made at the beginning: once something has failed, there may be no memory
  /// for it.
  std::unique_ptr<node> node_;
};

} // namespace syncnorm::detail
