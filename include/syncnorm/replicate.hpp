#pragma once

#include "syncnorm/detail/module_tree.hpp"

#include <any>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncnorm {

/// What the copies of one sub-module share while they are told that they are
/// copies: copy 0 publishes something, as a rule the handle of its master, and
/// the others read it. One thread uses it at a time.
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

/// A module with something to do when it becomes one of several copies. Modules
/// that are reached by pointers to a polymorphic base derive from it; for other
/// types a member function of the same name is enough.
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

  /// Called when the copies part, for example to be replicated anew after an
  /// error.
  virtual void on_data_parallel_release() {}

  /// Called on the sub-modules of a copy that cannot go on: whoever waits for
  /// it must be told `why`.
  virtual void on_data_parallel_failure(const std::string& why) {
    std::ignore = why;
  }
};

/// The three functions of `module_traits` that call what a module has: a member
/// function, or, if Module is polymorphic, that of `replicable`.
template <class Module>
struct replicable_calls {
  /// Runs the callback of `m`. Returns whether it has one.
  static bool replicate(Module& m, callback_context& context,
                        std::int64_t copy_id) {
    if constexpr (requires { m.on_data_parallel_replicate(context, copy_id); })
      return m.on_data_parallel_replicate(context, copy_id), true;
    else if (auto* listener = detail::cast_to<replicable>(m))
      return listener->on_data_parallel_replicate(context, copy_id), true;
    return false;
  }

  /// Undoes `replicate`.
  static void release(Module& m) {
    if constexpr (requires { m.on_data_parallel_release(); })
      m.on_data_parallel_release();
    else if (auto* listener = detail::cast_to<replicable>(m))
      listener->on_data_parallel_release();
  }

  /// Tells `m` that its copy cannot go on.
  static void fail(Module& m, const std::string& why) {
    if constexpr (requires { m.on_data_parallel_failure(why); })
      m.on_data_parallel_failure(why);
    else if (auto* listener = detail::cast_to<replicable>(m))
      listener->on_data_parallel_failure(why);
  }
};

/// The type of module by which a tree with a root of type `Module` is walked:
/// `Module` itself, unless this is specialized for types whose sub-modules are
/// known by a base of theirs. `module_traits` is taken of `type`.
template <class Module>
struct module_base {
  /// `Module` or a base of it.
  using type = Module;
};

namespace detail {

/// The address of what `owner` points to, null if that is nothing.
template <class Owner>
auto pointer_to(const Owner& owner) {
  // One of libtorch's module holders, which hands on its own const otherwise.
  if constexpr (requires { owner.ptr().get(); })
    return owner ? owner.ptr().get() : nullptr;
  else
    return owner ? &*owner : nullptr;
}

/// A sub-module of a `Module` with its name, of what `children` has for it.
template <class Module, class Entry>
auto child_of(Entry&& entry) {
  auto&& [name, owner] = entry;
  auto* child = pointer_to(owner);
  using type = std::remove_pointer_t<decltype(child)>;
  using base = std::conditional_t<std::is_convertible_v<type*, Module*>, Module,
                                  typename module_base<type>::type>;
  return std::pair<std::string, base*>{std::string{name}, child};
}

} // namespace detail

/// How `execute_replication_callbacks` walks a tree below a `Module`. The
/// general template takes types with these members, none of which is required:
///
///     m.kind()      what it is, e.g. "BatchNorm2d"; a string
///     m.children()  a range of pairs (name, pointer to Module, or to another
///                   type of module), in order
///     m.on_data_parallel_replicate(context, copy_id)
///     m.on_data_parallel_release()
///     m.on_data_parallel_failure(why)
///
/// and, if Module is polymorphic, finds the last three by `replicable` as well.
/// Specialize it for a type that is not yours, with all five of its functions,
/// of which `replicable_calls<Module>`, as a base, has the last three.
template <class Module>
struct module_traits : replicable_calls<Module> {
  /// Names the kind of `m`: copies of one sub-module must be of one kind.
  static std::string kind(const Module& m) {
    if constexpr (requires { m.kind(); })
      return std::string{m.kind()};
    return "module";
  }

  /// The sub-modules of `m` with their names, in order.
  static auto children(Module& m) {
    if constexpr (requires { m.children(); }) {
      auto&& entries = m.children();
      std::vector<decltype(detail::child_of<Module>(*std::begin(entries)))>
          result;
      for (auto&& entry : entries)
        result.push_back(detail::child_of<Module>(entry));
      return result;
    } else {
      return std::vector<std::pair<std::string, Module*>>{};
    }
  }
};

namespace detail {

/// The addresses of what the elements of `owners` point to.
template <class Owners>
auto pointers_to(const Owners& owners) {
  using root = std::remove_pointer_t<decltype(pointer_to(*owners.begin()))>;
  std::vector<typename module_base<root>::type*> result;
  result.reserve(std::distance(owners.begin(), owners.end()));
  for (const auto& owner : owners)
    result.push_back(pointer_to(owner));
  return result;
}

inline void release(const module_handle& m) {
  m.calls->release(m.address);
}

template <class Module>
void execute_callbacks(std::span<Module* const> copies) {
  auto trees =
      list_trees<module_traits>("execute_replication_callbacks", copies);
  require_same_shape(trees);
  std::vector<callback_context> contexts;
  for (const auto& node : trees[0])
    contexts.emplace_back(node.path, static_cast<std::int64_t>(trees.size()));
  callback_log log;
  try {
    for (std::size_t copy = 0; copy < trees.size(); ++copy)
      for (std::size_t i = 0; i < contexts.size(); ++i) {
        auto& node = trees[copy][i];
        if (node.first_seen != i)
          continue;
        log.require_new(node, copy);
        if (node.module.calls->replicate(node.module.address, contexts[i],
                                         static_cast<std::int64_t>(copy)))
          log.add(node, copy);
      }
  } catch (...) {
    // The caller gets what the callback threw, not what a release does.
    std::ignore = call_on_all(log.modules(), release);
    throw;
  }
}

/// Calls `f` with every module of `roots`, the arguments of `function`.
/// @throws what `f` throws first, when all were called.
template <class Module, class F>
void call_on_trees(std::string_view function, std::span<Module* const> roots,
                   F f) {
  auto trees = list_trees<module_traits>(function, roots);
  if (auto thrown = call_on_all(modules_of(trees), f))
    std::rethrow_exception(thrown);
}

} // namespace detail

/// Tells the sub-modules of `copies`, trees of one shape, that they are copies
/// of each other: makes a `callback_context` for each sub-module and calls
/// `on_data_parallel_replicate(context, copy_id)` on those that have it; on all
/// of copy 0 first, then of copy 1, and so on, parents before their children. A
/// sub-module that stands in several places of its tree is called once.
///
/// @param copies the roots, a range of pointers of any kind, for example
///               `std::vector<std::shared_ptr<Module>>`; the position is the
///               copy's identifier. The trees must not share a sub-module that
///               has the callback.
/// @throws error `invalid_argument` before the first callback, if there are no
///         copies, if one is null, or if two differ; it names the first
///         difference: copy, path, what was expected and what was found.
/// @throws error `invalid_argument` if copies share a sub-module whose callback
///         would so run twice; and whatever a callback throws. Then those
///         whose callback has returned are released again, all of them: what a
///         release throws is lost.
template <class Copies>
void execute_replication_callbacks(const Copies& copies) {
  auto roots = detail::pointers_to(copies);
  detail::execute_callbacks(detail::view_of(roots));
}

/// Undoes `execute_replication_callbacks`: calls `on_data_parallel_release` on
/// every sub-module of every copy that has it, once. After an error in a
/// forward or backward pass the copies are released, then replicated again.
/// Does not compare the trees.
/// @throws error `invalid_argument` before the first call, if a copy or a
///         sub-module is null; and what a call throws first, after the last.
template <class Copies>
void release_replicas(const Copies& copies) {
  auto roots = detail::pointers_to(copies);
  detail::call_on_trees("release_replicas", detail::view_of(roots),
                        detail::release);
}

/// Tells the other copies that this one cannot go on, for example because its
/// forward threw: calls `on_data_parallel_failure(why)` on every sub-module
/// that has it, so that nobody waits for it until a deadline. Every other copy
/// gets an error with that text.
/// @throws error `invalid_argument` before the first call, if the copy or a
///         sub-module is null; and what a call throws first, after the last.
template <class Module>
void fail_replica(Module* copy, const std::string& why) {
  if (copy == nullptr)
    detail::throw_null("fail_replica", "the copy");
  auto roots = detail::pointers_to(std::array{copy});
  detail::call_on_trees("fail_replica", detail::view_of(roots),
                        [&why](const detail::module_handle& m) {
                          m.calls->fail(m.address, why);
                        });
}

} // namespace syncnorm
