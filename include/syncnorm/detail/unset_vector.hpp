#pragma once

#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// Leaves new elements uninitialized where no value is given.
template <class T>
struct unset_allocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = unset_allocator<U>;
  };

  using std::allocator<T>::allocator;

  template <class U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }

  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
};

/// A vector for data that is read into it at once: `resize` does not fill it
/// with zeros, which takes as long as the reading.
template <class T>
using unset_vector = std::vector<T, unset_allocator<T>>;

} // namespace syncnorm::detail
