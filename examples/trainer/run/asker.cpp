#include "trainer/run/asker.hpp"

#include <atomic>
#include <utility>

namespace syncnorm::train {

namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

} // namespace

errand::errand() : number{next_number()} {}

errand::~errand() = default;

const char* asker::name() const {
  return "syncnorm.train.asker";
}

void asker::on_exit() {
  errands_.clear();
}

caf::behavior asker::make_behavior() {
  return {
      [this](ask_atom, errand_slot& x) { start(x); },
      [this](expire_atom, std::uint64_t number) { expire(number); },
  };
}

const caf::error* asker::watch(const caf::actor& x) {
  auto [i, is_new] = watched_.try_emplace(x.address());
  if (is_new)
    compat::monitor(this, x,
                    [this](const caf::actor_addr& who, const caf::error& why) {
                      on_down(who, why);
                    });
  return i->second ? &*i->second : nullptr;
}

void asker::expire_after(caf::timespan delay, const errand& x) {
  compat::delayed_send(this, caf::actor{this}, delay, expire_atom_v, x.number);
}

void asker::forget(const errand& x) {
  errands_.erase(x.number);
}

void asker::start(errand_slot& x) {
  auto it = std::move(x.it);
  // Empty: CAF 0.17 has read it from another process.
  if (!it)
    return;
  errands_.emplace(it->number, it);
  it->start(*this);
}

void asker::on_down(const caf::actor_addr& who, const caf::error& why) {
  watched_[who] = why;
  // Some errands end by this.
  auto all = errands_;
  for (auto& [number, it] : all)
    it->on_down(*this, who, why);
}

void asker::expire(std::uint64_t number) {
  // Only actors of this process may command.
  const auto& sender = current_sender();
  auto found = errands_.find(number);
  if (sender == nullptr || sender->node() != system().node()
      || found == errands_.end())
    return;
  auto it = found->second;
  it->expire(*this);
}

void expire(const caf::actor& asker, std::uint64_t number) {
  caf::scoped_actor self{asker.home_system()};
  compat::send(self, asker, expire_atom_v, number);
}

} // namespace syncnorm::train
