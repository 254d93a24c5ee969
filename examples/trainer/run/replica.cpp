#include "trainer/run/replica.hpp"

#include "trainer/failure.hpp"
#include "trainer/plan/devices.hpp"
#include "trainer/plan/epoch_order.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/gradient_exchange.hpp"
#include "trainer/run/relay_door.hpp"
#include "trainer/run/relay_station.hpp"
#include "trainer/run/request_check.hpp"
#include "trainer/run/this_machine.hpp"
#include "trainer/run/worker.hpp"

#include "syncnorm/caf_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>
#include <string>
#include <utility>

namespace syncnorm::train {

namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) {
  std::chrono::duration<double> time = clock::now() - start;
  return time.count();
}

/// Time for which the calling thread has run, in seconds.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec)
         + 1e-9 * static_cast<double>(time.tv_nsec);
}

bool is_finite(const gradient_part& part) {
  return std::isfinite(part.loss) && all_finite(part.gradient);
}

/// A replica's place among the others.
struct replica_place {
  std::size_t index = 0;
  std::size_t replicas = 1;
  device where;
  /// The cores that its process may use.
  std::vector<int> cores;
  /// Its own core, if its process has one for each of its replicas.
  std::optional<int> core;
};

/// What a replica actor owns.
struct replica_parts {
  settings options;
  replica_place place;
  dataset_ptr data;
  std::unique_ptr<engine> machine;
  std::unique_ptr<gradient_exchange> gradients;
  /// Only for the first replica in a process that is not the host.
  std::unique_ptr<relay_station> station;
  std::unique_ptr<relay_door> door;
};

using parts_ptr = std::shared_ptr<replica_parts>;

/// The actor. It has a thread of its own, on which it computes and waits for
/// the other replicas, always with a deadline.
class replica : public replica_actor::base {
public:
  replica(caf::actor_config& config, parts_ptr parts)
      : replica_actor::base{config},
        parts_{std::move(parts)} {}

  const char* name() const override {
    return "syncnorm.train.replica";
  }

  void on_exit() override {
    parts_.reset();
  }

  behavior_type make_behavior() override {
    return {
        [this](lead_atom, std::uint64_t replicas) -> caf::result<lineup> {
          return guarded([&] { return lead(replicas); });
        },
        [this](relay_atom, const lineup& leader, std::uint64_t first,
               std::uint64_t count) -> caf::result<lineup> {
          return guarded([&] { return relay(leader, first, count); });
        },
        [this](open_atom) -> caf::result<std::string> {
          return guarded([&] { return door().open(); }, process_name());
        },
        [this](reach_atom, const std::string& where) -> caf::result<void> {
          return guarded([&] { door().reach(where); }, process_name());
        },
        [this](follow_atom, const lineup& leader, std::uint64_t index,
               std::uint64_t replicas) -> caf::result<void> {
          return guarded([&] { follow(leader, index, replicas); });
        },
        [this](settle_atom, std::uint64_t index,
               std::uint64_t count) -> caf::result<void> {
          return guarded([&] { settle(index, count); });
        },
        [this](step_atom, const step_plan& plan) -> caf::result<step_report> {
          return guarded([&] { return step(plan); });
        },
        [this](evaluate_atom, std::uint64_t begin,
               std::uint64_t end) -> caf::result<evaluation> {
          return guarded([&] { return evaluate(begin, end); });
        },
        [this](hash_atom) -> caf::result<std::uint64_t> {
          return guarded([&] { return parts_->machine->hash(); });
        },
        [this](state_atom) -> caf::result<model_state> {
          return guarded([&] { return state(); });
        },
        [this](assume_atom, const model_state& state) -> caf::result<void> {
          return guarded([&] { assume(state); });
        },
        [this](ping_atom) -> caf::result<std::string> {
          return guarded([&] {
            return parts_->door ? parts_->door->find_break() : std::string{};
          });
        },
    };
  }

private:
  /// The handler's edge: answers what `f` returns or, in one line, why it
  /// threw. If it threw, this replica no longer takes part, and tells the
  /// others so.
  /// @param who names the culprit; empty: this replica, by its number.
  template <class F>
  auto guarded(F f, std::string who = {}) -> caf::result<decltype(f())> {
    prepare_thread();
    try {
      if constexpr (std::is_void_v<decltype(f())>) {
        f();
        return caf::unit;
      } else {
        return f();
      }
    } catch (const error& x) {
      return leave(x.code(), who, x.what());
    } catch (const std::exception& x) {
      return leave(errc::invalid_argument, who, x.what());
    }
  }

  void prepare_thread() {
    if (prepared_)
      return;
    prepared_ = true;
    engine::prepare_thread();
    if (auto core = parts_->place.core)
      stay_on({*core});
  }

  /// If this machine has as many replicas as cores, each has a core, and leaves
  /// it at once to the threads that carry messages: no core is left for these.
  void settle(std::size_t index, std::size_t count) {
    require_place(index, count);
    parts_->station.reset();
    if (parts_->door)
      parts_->door->leave();
    if (!on_cpu() || parts_->place.core || parts_->place.cores.empty())
      return;
    auto own = choose_cores(count, parts_->place.cores);
    if (own.empty())
      return stay_on(parts_->place.cores);
    stay_on({own[index]});
  }

  caf::error leave(errc code, std::string who, const std::string& what) {
    if (who.empty())
      who = fmt::format("replica {}", parts_->place.index);
    auto why = fmt::format("{}: {}", who, first_line(what));
    parts_->machine->give_up(why);
    if (parts_->gradients)
      parts_->gradients->give_up(why);
    // Nor does it do a step that was requested in advance.
    parts_->gradients.reset();
    return make_error(code, why);
  }

  lineup lead(std::size_t replicas) {
    require_place(0, replicas);
    parts_->place.index = 0;
    parts_->place.replicas = replicas;
    lineup result;
    result.layers = parts_->machine->lead(system(), replicas);
    parts_->gradients = std::make_unique<gradient_exchange>(
        system(), parts_->options.round_deadline(), parts_->machine->size(),
        parts_->options.chunk_elements());
    result.gradients = parts_->gradients->masters();
    return result;
  }

  lineup relay(const lineup& leader, std::uint64_t first, std::uint64_t count) {
    if (first < 1 || first > max_run_replicas || count > max_run_replicas)
      throw failure{
          fmt::format("relays for {} replicas from {} on", count, first)};
    if (!parts_->station)
      parts_->station = std::make_unique<relay_station>();
    return parts_->station->open(
        system(), leader,
        {static_cast<std::int64_t>(first), static_cast<std::int64_t>(count)});
  }

  relay_door& door() {
    if (!parts_->door)
      parts_->door = std::make_unique<relay_door>(system(), parts_->options);
    return *parts_->door;
  }

  void follow(const lineup& leader, std::size_t index, std::size_t replicas) {
    require_place(index, replicas);
    parts_->place.index = index;
    parts_->place.replicas = replicas;
    parts_->machine->follow(system(), index, leader.layers);
    parts_->gradients = std::make_unique<gradient_exchange>(
        system(), leader.gradients, index, parts_->machine->size(),
        parts_->options.chunk_elements());
  }

  evaluation evaluate(std::uint64_t begin, std::uint64_t end) {
    require_range(begin, end, parts_->data->held_out.size());
    return parts_->machine->evaluate(begin, end);
  }

  step_report step(const step_plan& plan) {
    require_range(plan.begin, plan.end, parts_->data->training.size());
    if (!parts_->gradients)
      throw failure{"a step with nobody: expected to lead or follow first"};
    try {
      return try_step(plan);
    } catch (...) {
      parts_->machine->roll_back();
      throw;
    }
  }

  step_report try_step(const step_plan& plan) {
    auto start = clock::now();
    auto running = thread_seconds();
    step_report report;
    auto part = parts_->machine->differentiate(
        samples_of(plan), plan.end - plan.begin, plan.epoch);
    auto before = clock::now();
    auto sum = parts_->gradients->run(part);
    auto exchange = seconds_since(before);
    // Several chunks may be added at a time.
    report.averaging = std::min(sum.seconds, exchange);
    report.loss = sum.loss;
    report.sum_finite = sum.finite;
    if (sum.finite)
      descend(plan, sum.gradient);
    else
      report.finite = is_finite(part);
    report.seconds = seconds_since(start);
    report.waiting =
        std::max(0.0, on_cpu() ? report.seconds - (thread_seconds() - running)
                               : exchange - report.averaging);
    return report;
  }

  void descend(const step_plan& plan, const flat_array& gradient) {
    const auto& options = parts_->options;
    between_ = true;
    parts_->machine->descend(
        {plan.learning_rate, options.momentum, options.weight_decay}, gradient);
    between_ = false;
  }

  [[nodiscard]] model_state state() const {
    if (between_)
      throw failure{"the weights are between two steps"};
    return parts_->machine->state();
  }

  void assume(const model_state& state) {
    parts_->machine->assume(state);
    between_ = false;
  }

  [[nodiscard]] bool on_cpu() const noexcept {
    return parts_->place.where.type == device_type::cpu;
  }

  std::span<const std::uint32_t> samples_of(const step_plan& plan) {
    if (!order_ || order_epoch_ != plan.epoch) {
      order_.emplace(parts_->data->training.size(), parts_->options.seed,
                     plan.epoch);
      order_epoch_ = plan.epoch;
    }
    auto shard = shard_of({plan.begin, plan.end}, parts_->place.replicas,
                          parts_->place.index);
    return order_->range(shard.begin, shard.end);
  }

  parts_ptr parts_;
  std::optional<epoch_order> order_;
  std::uint64_t order_epoch_ = 0;
  bool prepared_ = false;
  /// Whether a step down the gradient was begun and did not end.
  bool between_ = false;
};

/// For each device the core whose thread works for it alone, if it has one.
std::vector<std::optional<int>> cores_for(const std::vector<device>& devices,
                                          const std::vector<int>& usable) {
  auto is_cpu = [](const device& x) { return x.type == device_type::cpu; };
  auto wanted = std::ranges::count_if(devices, is_cpu);
  auto cores = choose_cores(static_cast<std::size_t>(wanted), usable);
  std::vector<std::optional<int>> result(devices.size());
  auto next = cores.begin();
  for (std::size_t i = 0; i < devices.size() && next != cores.end(); ++i)
    if (is_cpu(devices[i]))
      result[i] = *next++;
  return result;
}

} // namespace

std::vector<replica_actor> spawn_replicas(caf::actor_system& system,
                                          const settings& options,
                                          const std::vector<device>& devices,
                                          const dataset_ptr& data,
                                          std::uint64_t* fingerprint) {
  // What is made here is computed on the calling thread.
  engine::prepare_thread();
  std::vector<std::unique_ptr<engine>> machines;
  for (const auto& where : devices)
    machines.push_back(std::make_unique<engine>(options, where, data));
  if (fingerprint != nullptr)
    *fingerprint = machines.at(0)->fingerprint();
  auto usable = usable_cores();
  auto cores = cores_for(devices, usable);
  std::vector<replica_actor> result;
  for (std::size_t i = 0; i < devices.size(); ++i)
    result.push_back(
        system.spawn<replica, caf::detached>(std::make_shared<replica_parts>(
            replica_parts{options,
                          {i, devices.size(), devices[i], usable, cores[i]},
                          data,
                          std::move(machines[i]),
                          nullptr,
                          nullptr,
                          nullptr})));
  return result;
}

} // namespace syncnorm::train
