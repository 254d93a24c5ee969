#include "syncnorm/detail/stand_in.hpp"

#include <memory>
#include <utility>

namespace syncnorm::detail {

namespace {

/// Attached to an actor that has exited, it gets the reason at once.
class exit_reader final : public caf::attachable {
public:
  explicit exit_reader(std::shared_ptr<caf::error> to) : to_{std::move(to)} {}

  void actor_exited(const caf::error& reason, worker_type*) override {
    *to_ = reason;
  }

private:
  std::shared_ptr<caf::error> to_;
};

} // namespace

caf::error reason_of_exit(caf::abstract_actor& gone) {
  auto result = std::make_shared<caf::error>();
  gone.attach(std::make_unique<exit_reader>(result));
  return *result;
}

caf::actor spawn_stand_in(caf::actor_system& system, caf::error reason) {
  return system.spawn(answer_any, std::move(reason));
}

} // namespace syncnorm::detail
