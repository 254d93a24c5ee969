#pragma once

#include "syncnorm/detail/module_tree.hpp"
#include "syncnorm/replicable.hpp"

#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncnorm {

/// The three functions of `module_traits` that call a module's callbacks: its
/// member functions or, if Module is polymorphic, those of `replicable`.
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
/// known by their base class. `module_traits` is used with `type`.
template <class Module>
struct module_base {
  /// `Module` or a base of it.
  using type = Module;
};

namespace detail {

/// The address of what `owner` points to; null if it points to nothing.
template <class Owner>
auto pointer_to(const Owner& owner) {
  // One of libtorch's module holders, which otherwise passes on its own const.
  if constexpr (requires { owner.ptr().get(); })
    return owner ? owner.ptr().get() : nullptr;
  else
    return owner ? &*owner : nullptr;
}

/// A sub-module of a `Module` with its name, from its entry in `children`.
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
/// and, if Module is polymorphic, also finds the last three through
/// `replicable`. For a type that is not yours, specialize it with all five
/// functions; the last three can come from `replicable_calls<Module>` as a
/// base.
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

} // namespace syncnorm
