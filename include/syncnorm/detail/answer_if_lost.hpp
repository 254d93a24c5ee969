#pragma once

#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/detail/is_distant.hpp"
#include "syncnorm/detail/stand_in.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// The error of a replica whose master is gone.
/// @param identifier of the replica; `no_replica` for somebody who only asks.
inline caf::error master_is_down(std::int64_t identifier,
                                 const caf::error& reason) {
  // The text comes from another node, and so has any length.
  constexpr std::size_t max_text = 2000;
  return make_error(errc::master_down,
                    replica_prefix(identifier) + "the master is down ("
                        + describe(reason).substr(0, max_text) + ")");
}

/// Attached to this node's proxy of a master on another node. Answers the open
/// requests of one replica, or of somebody who only asks, when the proxy exits,
/// as it does when that node is considered lost; if the master has exited
/// already, at once. Where an answer came before, the asker drops this one.
class lost_answer final : public caf::attachable {
public:
  /// How many requests of a blocking actor that only asks are answered, as
  /// nobody knows which have been. An actor that waits for more at a time gets
  /// CAF's timeouts for the first ones. Of a blocking replica, only the last
  /// request is answered.
  static constexpr std::size_t max_unknown = 8;

  /// Whose request it is.
  struct replica {
    caf::actor_id asker;
    std::int64_t identifier;

    bool operator==(const replica&) const = default;
  };

  /// Selects the `lost_answer` attached for that replica; `answers` gets its
  /// ids.
  struct predecessor {
    static constexpr std::size_t token_type = 0x73796e63; // "sync"
    replica whose;
    std::vector<caf::message_id>& answers;
  };

  /// Selects the `forget_at_exit` attached to the asker for that replica.
  struct counterpart {
    static constexpr std::size_t token_type = 0x73796e64;
    const caf::actor_control_block* proxy;
    replica whose;

    bool operator==(const counterpart&) const = default;
  };

  lost_answer(const caf::actor_control_block* proxy, caf::weak_actor_ptr asker,
              std::vector<caf::message_id> ids, const replica& whose)
      : proxy_{proxy},
        asker_{std::move(asker)},
        ids_{std::move(ids)},
        whose_{whose} {}

  void actor_exited(const caf::error& reason, worker_type*) override {
    auto asker = asker_.lock();
    if (!asker)
      return;
    asker->get()->detach(counterpart{proxy_, whose_});
    for (auto id : ids_)
      answer(asker, id, master_is_down(whose_.identifier, reason));
  }

  bool matches(const token& what) override {
    if (what.subtype != predecessor::token_type)
      return false;
    const auto& x = *static_cast<const predecessor*>(what.ptr);
    if (x.whose != whose_)
      return false;
    x.answers = ids_;
    return true;
  }

private:
  /// Only compared.
  const caf::actor_control_block* proxy_;
  caf::weak_actor_ptr asker_;
  std::vector<caf::message_id> ids_;
  replica whose_;
};

/// Attached to the asker: once that has ended, the proxy of a master keeps
/// nothing of the replica's. Removed when the proxy exits.
class forget_at_exit final : public caf::attachable {
public:
  forget_at_exit(caf::weak_actor_ptr proxy, const lost_answer::replica& whose)
      : proxy_{std::move(proxy)},
        whose_{whose} {}

  void actor_exited(const caf::error&, worker_type*) override {
    std::vector<caf::message_id> ignored;
    if (auto proxy = proxy_.lock())
      proxy->get()->detach(lost_answer::predecessor{whose_, ignored});
  }

  bool matches(const token& what) override {
    return what.subtype == lost_answer::counterpart::token_type
           && *static_cast<const lost_answer::counterpart*>(what.ptr)
                  == lost_answer::counterpart{proxy_.get(), whose_};
  }

private:
  caf::weak_actor_ptr proxy_;
  lost_answer::replica whose_;
};

/// An actor that answers the next request in place of a master that has exited
/// or whose node is lost.
template <class Self, class Master>
Master stand_in_for(Self&& self, const Master& master,
                    std::int64_t identifier) {
  auto& gone = *caf::actor_cast<caf::abstract_actor*>(master);
  return caf::actor_cast<Master>(spawn_stand_in(
      self->home_system(), master_is_down(identifier, reason_of_exit(gone))));
}

/// Forgets the ids of answers that have come, as far as anybody knows.
template <class Self>
void keep_open(Self&& self, std::vector<caf::message_id>& ids,
               std::int64_t identifier) {
  using actor_type = std::remove_reference_t<decltype(*self)>;
  if constexpr (std::is_base_of_v<caf::scheduled_actor, actor_type>)
    std::erase_if(ids, [&](auto id) { return !may_wait_for(self, id); });
  else if (identifier != no_replica)
    ids.clear();
  else if (ids.size() == lost_answer::max_unknown)
    ids.erase(ids.begin());
}

/// Call before a request to a master: if that is on another node, the request
/// gets `master_down` as soon as the node is considered lost; at once if it
/// already is. For blocking actors, see `lost_answer::max_unknown`.
/// @returns the id of the answer to a replica's previous request, if there was
///          one.
template <class Self, class Master>
std::optional<caf::message_id> answer_if_lost(Self&& self, const Master& master,
                                              std::int64_t identifier) {
  // A master of this node answers all its requests when it exits.
  if (!is_distant(master))
    return std::nullopt;
  auto* proxy = caf::actor_cast<caf::abstract_actor*>(master);
  const lost_answer::replica whose{self->ctrl()->id(), identifier};
  std::vector<caf::message_id> before;
  proxy->detach(lost_answer::predecessor{whose, before});
  if (before.empty() && !has_exited(master))
    self->attach(std::make_unique<forget_at_exit>(
        caf::actor_cast<caf::weak_actor_ptr>(master), whose));
  std::optional<caf::message_id> former;
  if (identifier != no_replica && !before.empty())
    former = before.back();
  keep_open(self, before, identifier);
  before.push_back(next_answer(self));
  proxy->attach(std::make_unique<lost_answer>(
      caf::actor_cast<caf::actor_control_block*>(master),
      caf::weak_actor_ptr{self->ctrl()}, std::move(before), whose));
  return former;
}

} // namespace syncnorm::detail
