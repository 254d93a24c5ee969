#include "trainer/run/host.hpp"

#include "trainer/plan/devices.hpp"
#include "trainer/plan/run_identity.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/refusal_list.hpp"

#include "syncnorm/caf_error.hpp"
#include "syncnorm/compat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace syncnorm::train {

namespace {

/// No process has longer names and texts.
constexpr std::size_t max_name = 256;
constexpr std::size_t max_identity = 4096;

caf::error refusal(const std::string& text) {
  return make_error(errc::invalid_argument, text);
}

/// A process that takes part or did.
struct guest {
  process_entry entry;
  std::uint64_t start = 0;
  caf::actor_addr porter;
  /// To be answered at the end.
  std::optional<caf::typed_response_promise<std::string>> stay;
  bool leaving = false;
  bool down = false;
};

/// How the run has ended.
struct outcome {
  bool good = false;
  std::string text;
};

class host : public host_actor::base {
public:
  host(caf::actor_config& config, host_terms terms, change_count changes)
      : host_actor::base{config},
        terms_{std::move(terms)},
        changes_{std::move(changes)} {}

  const char* name() const override {
    return "syncnorm.train.host";
  }

  behavior_type make_behavior() override {
    return {
        [this](join_atom, application& x) { return join(x); },
        [this](stay_atom, std::uint64_t number) { return stay(number); },
        [this](leave_atom, std::uint64_t number) { leave(number); },
        [this](roll_atom, std::uint64_t count, caf::timespan patience) {
          return roll(count, patience);
        },
        [this](dismiss_atom, std::uint64_t number, const std::string& why) {
          if (is_owner())
            dismiss(number, why);
        },
        [this](end_atom, bool good, const std::string& text,
               caf::timespan patience) { return end(good, text, patience); },
        [this](refused_atom, const std::string& line) {
          if (is_owner())
            list_refusal(line);
        },
        [this](refusals_atom) { return take_refusals(); },
        [this](expire_atom, std::uint64_t timer) { expire(timer); },
    };
  }

private:
  using roll_type = std::vector<process_entry>;

  /// Whether the sender is in this process: only then may it command. Nobody
  /// knows where a message without a sender comes from.
  [[nodiscard]] bool is_owner() {
    const auto& sender = current_sender();
    return sender != nullptr && sender->node() == system().node();
  }

  // -- from workers -----------------------------------------------------------

  caf::result<std::uint64_t> join(application& x) {
    if (auto why = why_not(x)) {
      auto line = fmt::format("{} is refused: {}", x.name.substr(0, 80), *why);
      list_refusal(line);
      return refusal(line);
    }
    guest entry;
    entry.entry = {++last_number_,
                   printable(x.name, max_name),
                   x.rank,
                   {},
                   std::move(x.replicas)};
    entry.start = x.start;
    auto porter = caf::actor_cast<caf::actor>(current_sender());
    entry.porter = porter.address();
    guests_.emplace(last_number_, std::move(entry));
    compat::monitor(this, porter,
                    [this](const caf::actor_addr& who, const caf::error&) {
                      on_down(who);
                    });
    changed();
    return last_number_;
  }

  /// Why this process cannot take part.
  std::optional<std::string> why_not(const application& x) {
    if (current_sender() == nullptr)
      return "only an actor can join";
    if (outcome_)
      return "the run has ended";
    if (x.name.empty() || x.name.size() > max_name
        || x.identity.size() > max_identity || x.rank < -1)
      return "a malformed application";
    if (auto text = difference_of(terms_.identity, x.identity))
      return fmt::format("it would train something else: {}", *text);
    if (x.replicas.empty() || x.replicas.size() > max_replicas)
      return fmt::format("expected 1 to {} replicas, found {}", max_replicas,
                         x.replicas.size());
    for (const auto& replica : x.replicas)
      if (!replica || replica.node() != current_sender()->node())
        return "a replica that is not the applicant's own";
    return why_no_place(x);
  }

  std::optional<std::string> why_no_place(const application& x) {
    std::string there;
    std::size_t count = 0;
    auto replicas = terms_.replicas + x.replicas.size();
    for (const auto& [number, other] : guests_) {
      if (!other.entry.gone.empty())
        continue;
      ++count;
      replicas += other.entry.replicas.size();
      there += fmt::format("{}{}", there.empty() ? "" : ", ", other.entry.name);
      if (x.rank >= 0 && x.rank == other.entry.rank)
        return fmt::format("rank {} has joined already: {}", x.rank,
                           other.entry.name);
      // Containers may share a host name and a process number.
      if (other.porter == current_sender()->address()
          || (x.name == other.entry.name && x.start == other.start))
        return "it has joined already, or one of the same host and process "
               "number has, as containers may";
    }
    if (count >= terms_.workers)
      return fmt::format("expected {} process{} to join, and {} there: {}",
                         terms_.workers, terms_.workers == 1 ? "" : "es",
                         count == 1 ? "it is" : "they are", there);
    if (begun_ && terms_.on_failure == failure_kind::stop)
      return "the run has begun, and takes nobody in later; "
             "--on-failure=continue would";
    // Before the run has begun, its own process tells this to all of them.
    if (begun_ && replicas > terms_.batch)
      return fmt::format("with its {} there would be {} replicas, more than "
                         "the {} samples of a batch",
                         x.replicas.size(), replicas, terms_.batch);
    return std::nullopt;
  }

  void list_refusal(const std::string& text) {
    if (auto line = listed_.add(text)) {
      refusals_.push_back(std::move(*line));
      changes_->fetch_add(1);
    }
  }

  caf::result<std::string> stay(std::uint64_t number) {
    auto* entry = find(number);
    if (entry == nullptr)
      return refusal("who stays must have joined");
    auto promise = make_response_promise<std::string>();
    entry->stay = promise;
    if (!entry->entry.gone.empty())
      tell(*entry, turned_out(*entry));
    else if (outcome_)
      tell_outcome(*entry);
    return promise;
  }

  void leave(std::uint64_t number) {
    if (auto* entry = find(number)) {
      entry->leaving = entry->entry.gone.empty();
      lose(*entry, "has left");
    }
  }

  /// The guest with that number, if it is the sender.
  guest* find(std::uint64_t number) {
    auto found = guests_.find(number);
    return found != guests_.end() && current_sender() != nullptr
                   && found->second.porter == current_sender()->address()
               ? &found->second
               : nullptr;
  }

  void on_down(const caf::actor_addr& who) {
    for (auto& [number, entry] : guests_)
      if (entry.porter == who && !entry.down) {
        entry.down = true;
        lose(entry, "is gone");
      }
    if (outcome_ && all_down())
      farewell();
  }

  void lose(guest& entry, std::string why) {
    if (!entry.entry.gone.empty())
      return;
    entry.entry.gone = std::move(why);
    changed();
  }

  /// What the process of that entry is told.
  static caf::error turned_out(const guest& entry) {
    return refusal("this process " + entry.entry.gone);
  }

  static void tell(guest& entry, caf::expected<std::string> text) {
    if (auto promise = std::exchange(entry.stay, std::nullopt)) {
      if (text)
        promise->deliver(std::move(*text));
      else
        promise->deliver(std::move(text.error()));
    }
  }

  void tell_outcome(guest& entry) {
    if (outcome_->good)
      tell(entry, outcome_->text);
    else
      tell(entry, refusal(outcome_->text));
  }

  // -- from the trainer -------------------------------------------------------

  caf::result<std::vector<std::string>> take_refusals() {
    if (!is_owner())
      return refusal("only the host's own process may ask");
    return std::exchange(refusals_, {});
  }

  caf::result<roll_type> roll(std::uint64_t count, caf::timespan patience) {
    if (!is_owner())
      return refusal("only the host's own process may ask");
    if (present() >= count) {
      begun_ = true;
      return everybody();
    }
    awaited_ = count;
    auto promise = make_response_promise<roll_type>();
    waiting_ = promise;
    arm(patience);
    return promise;
  }

  void dismiss(std::uint64_t number, const std::string& why) {
    auto found = guests_.find(number);
    if (found == guests_.end())
      return;
    lose(found->second, why);
    if (found->second.leaving)
      tell(found->second, std::string{"left the run"});
    else
      tell(found->second, turned_out(found->second));
  }

  caf::result<bool> end(bool good, const std::string& text,
                        caf::timespan patience) {
    if (!is_owner())
      return refusal("only the host's own process may end the run");
    outcome_ = outcome{good, text};
    for (auto& [number, entry] : guests_)
      tell_outcome(entry);
    auto promise = make_response_promise<bool>();
    leaving_ = promise;
    if (all_down())
      farewell();
    else
      arm(patience);
    return promise;
  }

  // -- waiting ----------------------------------------------------------------

  void changed() {
    changes_->fetch_add(1);
    if (waiting_ && present() >= awaited_) {
      begun_ = true;
      auto promise = std::exchange(waiting_, std::nullopt);
      promise->deliver(everybody());
    }
  }

  void arm(caf::timespan delay) {
    compat::delayed_send(this, host_actor{this}, delay, expire_atom_v,
                         ++last_timer_);
  }

  void expire(std::uint64_t timer) {
    if (!is_owner() || timer != last_timer_)
      return;
    if (auto promise = std::exchange(waiting_, std::nullopt))
      promise->deliver(everybody());
    if (outcome_)
      farewell();
  }

  void farewell() {
    if (auto promise = std::exchange(leaving_, std::nullopt))
      promise->deliver(all_down());
  }

  [[nodiscard]] std::size_t present() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        guests_, [](const auto& x) { return x.second.entry.gone.empty(); }));
  }

  /// Whether everybody who has been told the end is gone.
  [[nodiscard]] bool all_down() const {
    return std::ranges::all_of(guests_, [](const auto& x) {
      const auto& entry = x.second;
      return entry.down || (!entry.entry.gone.empty() && !entry.leaving);
    });
  }

  /// All guests; those who are lost and gone, once and never again.
  [[nodiscard]] roll_type everybody() {
    roll_type result;
    for (const auto& [number, entry] : guests_)
      result.push_back(entry.entry);
    std::erase_if(guests_, [](const auto& x) {
      return x.second.down && !x.second.entry.gone.empty();
    });
    return result;
  }

  host_terms terms_;
  change_count changes_;
  std::map<std::uint64_t, guest> guests_;
  refusal_list listed_;
  /// The refusals that the trainer has not seen.
  std::vector<std::string> refusals_;
  std::uint64_t last_number_ = 0;
  std::uint64_t last_timer_ = 0;
  std::uint64_t awaited_ = 0;
  bool begun_ = false;
  /// Also for a process that asks after the end: one just admitted.
  std::optional<outcome> outcome_;
  std::optional<caf::typed_response_promise<roll_type>> waiting_;
  std::optional<caf::typed_response_promise<bool>> leaving_;
};

} // namespace

host_actor spawn_host(caf::actor_system& system, host_terms terms,
                      change_count changes) {
  return system.spawn<host>(std::move(terms), std::move(changes));
}

} // namespace syncnorm::train
