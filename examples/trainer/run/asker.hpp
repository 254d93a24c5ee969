#pragma once

#include "trainer/run/messages.hpp"

#include "syncnorm/compat.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace syncnorm::train {

class asker;

/// A question to several replicas at once. Everything but the constructor runs
/// in the asker.
class errand {
public:
  errand();
  errand(const errand&) = delete;
  errand& operator=(const errand&) = delete;
  virtual ~errand();

  /// Sends the requests.
  virtual void start(asker& self) = 0;

  virtual void on_down(asker& self, const caf::actor_addr& who,
                       const caf::error& why) = 0;

  /// Stops waiting for answers.
  virtual void expire(asker& self) = 0;

  /// No two errands of a process have the same number.
  const std::uint64_t number;
};

/// Orders by object. CAF compares the numbers of actor and process, which a
/// restarted process may have again, as in a container.
struct by_object {
  bool operator()(const caf::actor_addr& a, const caf::actor_addr& b) const {
    using block = caf::actor_control_block*;
    return std::less<>{}(caf::actor_cast<block>(a), caf::actor_cast<block>(b));
  }
};

/// Asks replicas in the name of the trainer: one actor for all errands. Each
/// actor that asks a replica of another process costs messages between the two
/// when it first does so and when it ends.
class asker : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  const char* name() const override;
  void on_exit() override;
  caf::behavior make_behavior() override;

  /// Notifies errands when `x` is gone.
  /// @returns why it is gone already; null: it is not.
  const caf::error* watch(const caf::actor& x);

  void expire_after(caf::timespan delay, const errand& x);

  /// To be called when that errand is done.
  void forget(const errand& x);

private:
  void start(errand_slot& x);
  void on_down(const caf::actor_addr& who, const caf::error& why);
  void expire(std::uint64_t number);

  std::map<std::uint64_t, std::shared_ptr<errand>> errands_;
  /// Why each actor is gone, if it is.
  std::map<caf::actor_addr, std::optional<caf::error>, by_object> watched_;
};

/// Tells the asker that the time of that errand is over.
void expire(const caf::actor& asker, std::uint64_t number);

} // namespace syncnorm::train
