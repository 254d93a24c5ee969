#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/detail/is_distant.hpp"
#include "syncnorm/detail/stand_in.hpp"
#include "syncnorm/errors.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace syncnorm::detail {

/// What a replica is told whose master is gone, or, as `no_replica`, somebody
/// who only asks.
inline caf::error master_is_down(std::int64_t identifier,
                                 const caf::error& reason) {
  // Another node's, and so of any length.
  constexpr std::size_t max_text = 2000;
  return make_error(errc::master_down,
                    replica_prefix(identifier) + "the master is down ("
                        + describe(reason).substr(0, max_text) + ")");
}

/// Attached to this node's proxy of a master on another node: answers the last
/// request of one replica when the proxy exits, as it does when that node is
/// taken for lost; to a master that has exited, at once. Where an answer came
/// before, the actor drops this one.
class lost_answer final : public caf::attachable {
public:
  /// Whose request it is.
  struct replica {
    caf::actor_id asker;
    std::int64_t identifier;

    bool operator==(const replica&) const = default;
  };

  /// Selects what was attached for that replica; `answer` gets its id.
  struct predecessor {
    static constexpr std::size_t token_type = 0x73796e63; // "sync"
    replica whose;
    std::optional<caf::message_id>& answer;
  };

  lost_answer(caf::weak_actor_ptr asker, caf::message_id id,
              const replica& whose)
      : asker_{std::move(asker)},
        id_{id},
        whose_{whose} {}

  void actor_exited(const caf::error& reason, worker_type*) override {
    if (auto asker = asker_.lock())
      answer(asker, id_, master_is_down(whose_.identifier, reason));
  }

  bool matches(const token& what) override {
    if (what.subtype != predecessor::token_type)
      return false;
    const auto& x = *static_cast<const predecessor*>(what.ptr);
    if (x.whose != whose_)
      return false;
    x.answer = id_;
    return true;
  }

private:
  caf::weak_actor_ptr asker_;
  caf::message_id id_;
  replica whose_;
};

/// Attached to who asks: once it has ended, the proxy of a master keeps nothing
/// of that replica's.
class forget_at_exit final : public caf::attachable {
public:
  forget_at_exit(caf::weak_actor_ptr proxy, const lost_answer::replica& whose)
      : proxy_{std::move(proxy)},
        whose_{whose} {}

  void actor_exited(const caf::error&, worker_type*) override {
    std::optional<caf::message_id> ignored;
    if (auto proxy = proxy_.lock())
      proxy->get()->detach(lost_answer::predecessor{whose_, ignored});
  }

private:
  caf::weak_actor_ptr proxy_;
  lost_answer::replica whose_;
};

/// An actor that answers the next request to a master that has exited, or whose
/// node is lost, in its place.
template <class Self, class Master>
Master stand_in_for(Self&& self, const Master& master,
                    std::int64_t identifier) {
  auto& gone = *caf::actor_cast<caf::abstract_actor*>(master);
  return caf::actor_cast<Master>(spawn_stand_in(
      self->home_system(), master_is_down(identifier, reason_of_exit(gone))));
}

/// Call before a request to a master: if that is on another node, the request
/// gets `master_down` as soon as the node is taken for lost; at once if it was
/// before. For the last request of a replica.
/// @returns the id of the answer to the one before, if there was one.
template <class Self, class Master>
std::optional<caf::message_id> answer_if_lost(Self&& self, const Master& master,
                                              std::int64_t identifier) {
  // A master of this node answers all that it has when it exits.
  if (!is_distant(master))
    return std::nullopt;
  auto* proxy = caf::actor_cast<caf::abstract_actor*>(master);
  const lost_answer::replica whose{self->ctrl()->id(), identifier};
  std::optional<caf::message_id> before;
  proxy->detach(lost_answer::predecessor{whose, before});
  proxy->attach(std::make_unique<lost_answer>(caf::weak_actor_ptr{self->ctrl()},
                                              next_answer(self), whose));
  if (!before && !has_exited(master))
    self->attach(std::make_unique<forget_at_exit>(
        caf::actor_cast<caf::weak_actor_ptr>(master), whose));
  return before;
}

} // namespace syncnorm::detail
