#include "syncnorm/nn/detail/replication_scope.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <utility>

namespace syncnorm::nn::detail {

namespace {

thread_local const replication_scope* innermost = nullptr;

} // namespace

replication_scope::replication_scope(caf::actor_system& system,
                                     SynchronizeOptions options,
                                     graph_kind graph,
                                     std::shared_ptr<forward_session> session,
                                     distant_copies* distant)
    : system_{&system},
      options_{std::move(options)},
      graph_{graph},
      session_{std::move(session)},
      distant_{distant},
      outer_{innermost} {
  if (options_.deadline && options_.deadline->count() <= 0)
    throw error{
        errc::invalid_argument,
        fmt::format("SynchronizeOptions: deadline: expected more than 0 "
                    "ns, got {} ns",
                    options_.deadline->count())};
  if (options_.group_size < 0)
    throw error{errc::invalid_argument,
                fmt::format("SynchronizeOptions: group_size: expected 0 or "
                            "more, got {}",
                            options_.group_size)};
  innermost = this;
}

replication_scope::~replication_scope() {
  innermost = outer_;
}

const replication_scope* replication_scope::current() noexcept {
  return innermost;
}

} // namespace syncnorm::nn::detail
