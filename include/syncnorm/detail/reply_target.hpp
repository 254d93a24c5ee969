#pragma once

#include "syncnorm/detail/reply_slot.hpp"

#include <memory>
#include <utility>
#include <variant>

namespace syncnorm::detail {

/// Where the answer to one message goes: to an actor's request, or to a
/// thread's slot. It takes one answer.
template <class Out>
class reply_target {
public:
  using promise = caf::response_promise;
  using writer = std::shared_ptr<future_writer<Out>>;

  reply_target() = default;

  /// @param self  the actor that has promised, and keeps this.
  reply_target(caf::local_actor& self, promise to)
      : self_{&self},
        to_{std::move(to)} {}

  explicit reply_target(reply_slot&& to) : to_{writer_of<Out>(std::move(to))} {}

  template <class Result>
  void deliver(Result&& result) {
    if (auto* actor = std::get_if<promise>(&to_))
      detail::deliver(*self_, *actor, std::forward<Result>(result));
    else if (auto* thread = std::get_if<writer>(&to_))
      (*thread)->put(std::forward<Result>(result));
    to_ = std::monostate{};
  }

private:
  caf::local_actor* self_ = nullptr;
  std::variant<std::monostate, promise, writer> to_;
};

} // namespace syncnorm::detail
