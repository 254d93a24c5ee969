#pragma once

#include <atomic>

namespace syncnorm::detail {

/// Detects that a second thread uses an object that only one may use at a time.
/// An object that it is moved to is in nobody's use.
class one_user {
public:
  one_user() = default;
  one_user(one_user&&) noexcept {}
  one_user& operator=(one_user&&) noexcept {
    return *this;
  }

  /// One use of the object; false if there is another.
  class use {
  public:
    explicit use(one_user& of) noexcept
        : of_{of},
          granted_{!of.taken_.exchange(true, std::memory_order_acquire)} {}

    use(const use&) = delete;
    use& operator=(const use&) = delete;

    ~use() {
      if (granted_)
        of_.taken_.store(false, std::memory_order_release);
    }

    explicit operator bool() const noexcept {
      return granted_;
    }

  private:
    one_user& of_;
    bool granted_;
  };

private:
  std::atomic<bool> taken_ = false;
};

} // namespace syncnorm::detail
