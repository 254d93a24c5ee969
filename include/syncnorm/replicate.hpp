#pragma once

#include "syncnorm/detail/replication.hpp"
#include "syncnorm/module_traits.hpp"
#include "syncnorm/replicable.hpp"

#include <array>
#include <string>

namespace syncnorm {

/// Tells the sub-modules of `copies`, trees of one shape, that they are copies
/// of each other: makes a `callback_context` for each sub-module and calls
/// `on_data_parallel_replicate(context, copy_id)` on those that have it: first
/// on all of copy 0, then on all of copy 1, and so on, parents before their
/// children. A sub-module in several places of its tree is called once.
///
/// @param copies the roots, a range of pointers of any kind, for example
///               `std::vector<std::shared_ptr<Module>>`; the position is the
///               copy's identifier. The trees must not share a sub-module that
///               has the callback.
/// @throws error `invalid_argument` before the first callback, if there are no
///         copies, if one is null, or if two differ; the text names the first
///         difference: copy, path, what was expected and what was found.
/// @throws error `invalid_argument` if copies share a sub-module whose callback
///         would therefore run twice; also whatever a callback throws. Then all
///         sub-modules whose callback has returned are released again; what a
///         release throws is lost.
template <class Copies>
void execute_replication_callbacks(const Copies& copies) {
  auto roots = detail::pointers_to(copies);
  detail::execute_callbacks(detail::view_of(roots));
}

/// Undoes `execute_replication_callbacks`: calls `on_data_parallel_release` on
/// every sub-module of every copy that has it, once. After an error in a
/// forward or backward pass, when every thread has returned from its pass,
/// release the copies, then replicate them again. Does not compare the trees.
/// @throws error `invalid_argument` before the first call, if a copy or a
///         sub-module is null; and, after the last call, what a call has thrown
///         first.
template <class Copies>
void release_replicas(const Copies& copies) {
  auto roots = detail::pointers_to(copies);
  detail::call_on_trees("release_replicas", detail::view_of(roots),
                        detail::release);
}

/// Tells the other copies that this one cannot go on, for example because its
/// forward pass threw: calls `on_data_parallel_failure(why)` on every
/// sub-module that has it, so that nobody waits for it until a deadline. Every
/// other copy gets an error with that text.
/// @throws error `invalid_argument` before the first call, if the copy or a
///         sub-module is null; and, after the last call, what a call has thrown
///         first.
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
