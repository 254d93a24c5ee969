#pragma once

#include "syncnorm/detail/module_tree.hpp"

#include <any>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

namespace syncnorm {

/// What the copies of one sub-module share while they are told that they are
/// copies: copy 0 publishes something, as a rule the handle of its master, and
/// the others read it. Only one thread may use it at a time.
class callback_context {
public:
  /// @param path   names the sub-module inside the tree; empty for the root.
  /// @param copies how many copies of it there are: 1 or more.
  callback_context(std::string path, std::int64_t copies)
      : path_{std::move(path)},
        copies_{copies} {}

  /// The sub-module's place in the tree, for example `"features.3"`; empty for
  /// the root.
  [[nodiscard]] const std::string& path() const noexcept {
    return path_;
  }

  /// Number of copies, copy 0 included.
  [[nodiscard]] std::int64_t copies() const noexcept {
    return copies_;
  }

  /// Publishes `value` for the copies whose callbacks run later.
  /// @throws error `invalid_argument` if something was published before: the
  ///         callback of copy 0 has run twice.
  template <class T>
  void publish(T value) {
    if (published_.has_value())
      detail::throw_published_twice(path_);
    published_ = std::move(value);
  }

  /// Returns what copy 0 published.
  /// @throws error `invalid_argument` if it published nothing, or something of
  ///         another type.
  template <class T>
  [[nodiscard]] const T& published() const {
    const auto* value = std::any_cast<T>(&published_);
    if (value == nullptr)
      detail::throw_not_published(path_, published_.has_value());
    return *value;
  }

private:
  std::string path_;
  std::int64_t copies_;
  std::any published_;
};

/// A module that must act when it becomes one of several copies. Modules that
/// are reached by pointers to a polymorphic base derive from this class; for
/// other types, a member function of the same name is enough.
class replicable {
public:
  replicable() = default;
  /// Copies nothing: the interface has no state.
  replicable(const replicable&) = default;
  /// Copies nothing: the interface has no state.
  replicable& operator=(const replicable&) = default;
  virtual ~replicable() = default;

  /// Called once for each copy, for copy 0 first.
  virtual void on_data_parallel_replicate(callback_context& context,
                                          std::int64_t copy_id) = 0;

  /// Called when the copies part, for example to be replicated again after an
  /// error.
  virtual void on_data_parallel_release() {}

  /// Called on the sub-modules of a copy that cannot go on: participants that
  /// wait for this copy must be told `why`.
  virtual void on_data_parallel_failure(const std::string& why) {
    std::ignore = why;
  }
};

} // namespace syncnorm
