#include "normalizer.hpp"

#include <syncnorm/caf_error.hpp>
#include <syncnorm/compat.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace pipeline {

namespace {

using syncnorm::errc;

constexpr int max_attempts = 3;

/// Whether other slaves might do better: somebody died or was late. An error in
/// a batch stays one.
bool worth_another_try(const caf::error& reason) {
  auto code = syncnorm::code_of(reason);
  return !code || *code == errc::participant_down || *code == errc::master_down
         || *code == errc::stale || *code == errc::deadline_exceeded;
}

/// CAF's own errors do not name the slave.
caf::error with_name(std::int64_t slave, const caf::error& reason) {
  if (syncnorm::code_of(reason))
    return reason;
  return syncnorm::make_error(errc::participant_down,
                              "slave " + std::to_string(slave)
                                  + " does not answer: "
                                  + syncnorm::describe(reason));
}

} // namespace

normalizer::normalizer(caf::actor_config& config, supervisor_actor supervisor,
                       source_actor source, std::shared_ptr<stop_signal> stop,
                       stage_actor next)
    : stage_actor::base{config},
      supervisor_{std::move(supervisor)},
      source_{std::move(source)},
      stop_{std::move(stop)},
      next_{std::move(next)} {}

void normalizer::on_exit() {
  supervisor_ = nullptr;
  source_ = nullptr;
  next_ = nullptr;
  crew_ = {};
}

normalizer::behavior_type normalizer::make_behavior() {
  // If one stage dies, all do, and the sink tells the main thread.
  link_to(next_);
  link_to(source_);
  link_to(supervisor_);
  recovering_ = true;
  syncnorm::compat::request(this, supervisor_, crew_atom_v)
      .then([this](const crew& x) { take(x); },
            [this](const caf::error& x) { give_up(syncnorm::describe(x)); });
  return {
      [this](batch_atom, batch& x) { take(x); },
      [this](end_atom, const totals& x) {
        end_ = x;
        end_if_empty();
      },
  };
}

void normalizer::take(batch& x) {
  if (!failure_.empty())
    return lose(x);
  window_.push_back(std::make_shared<job>(job{std::move(x), {}, 0, false}));
  feed();
}

void normalizer::take(crew x) {
  recovering_ = false;
  broken_.reset();
  groups_ = 0;
  crew_ = std::move(x);
  for (auto& at : window_)
    if (!at->done())
      at->fed = false;
  settle();
  feed();
}

void normalizer::feed() {
  while (groups_ < crew_.groups && !recovering_ && !broken_) {
    auto next = next_group();
    if (next->jobs.empty())
      return;
    scatter(next);
  }
}

normalizer::group_ptr normalizer::next_group() const {
  auto result = std::make_shared<group>();
  for (const auto& at : window_)
    if (!at->fed && result->jobs.size() < crew_.together)
      result->jobs.push_back(at);
  return result;
}

// begin: scatter
void normalizer::scatter(const group_ptr& some) {
  auto slaves = crew_.slaves.size();
  for (auto& at : some->jobs) {
    at->fed = true;
    at->missing = slaves;
    at->out.assign(slaves, {});
  }
  ++groups_;
  some->missing = slaves;
  for (std::size_t r = 0; r < slaves; ++r)
    ask(some, r);
}

void normalizer::ask(const group_ptr& some, std::size_t slave) {
  auto r = static_cast<std::int64_t>(slave);
  auto count = static_cast<std::int64_t>(crew_.slaves.size());
  syncnorm::shared_tensors parts;
  for (const auto& at : some->jobs) {
    const auto& whole = at->in.parts[0];
    auto samples = whole.view().shape().samples;
    auto first = samples * r / count;
    parts.each.push_back(
        whole.samples(first, samples * (r + 1) / count - first));
  }
  ++open_;
  auto& to = crew_.slaves[slave];
  syncnorm::compat::request(this, to, syncnorm::forward_atom_v,
                            std::move(parts))
      .then(
          [this, some, slave, to](const syncnorm::shared_tensors& ys,
                                  std::uint64_t pass_id) {
            // Nobody will use these pass ids for a backward pass.
            for (std::size_t i = 0; pass_id != 0 && i < ys.each.size(); ++i)
              syncnorm::compat::anon_send(to, syncnorm::forget_atom_v,
                                          pass_id + i);
            gather(*some, slave, ys);
          },
          [this, r](const caf::error& reason) {
            --open_;
            if (!broken_)
              broken_ = with_name(r, reason);
            settle();
          });
}
// end: scatter

void normalizer::gather(group& some, std::size_t slave,
                        const syncnorm::shared_tensors& ys) {
  --open_;
  for (std::size_t i = 0; i < some.jobs.size(); ++i) {
    some.jobs[i]->out[slave] = ys.each[i];
    --some.jobs[i]->missing;
  }
  if (--some.missing == 0)
    --groups_;
  feed();
  settle();
}

void normalizer::settle() {
  while (!window_.empty() && window_.front()->done()) {
    auto& at = *window_.front();
    attempts_ = 0;
    syncnorm::compat::send(this, next_, batch_atom_v,
                           batch{at.in.number, std::move(at.out)});
    window_.pop_front();
  }
  if (broken_ && open_ == 0 && !recovering_)
    recover();
  end_if_empty();
}

void normalizer::recover() {
  if (window_.empty() || !failure_.empty())
    return;
  if (!worth_another_try(*broken_) || ++attempts_ > max_attempts)
    return give_up(syncnorm::describe(*broken_));
  ++recoveries_;
  recovering_ = true;
  syncnorm::compat::request(this, supervisor_, recover_atom_v)
      .then([this](const crew& x) { take(x); },
            [this](const caf::error& x) { give_up(syncnorm::describe(x)); });
}

void normalizer::give_up(const std::string& why) {
  failure_ = why;
  recovering_ = false;
  for (const auto& at : window_)
    lose(at->in);
  window_.clear();
  syncnorm::compat::send(this, source_, stop_atom_v, why);
  stop_->raise(stop_signal::reason::failed);
  end_if_empty();
}

void normalizer::lose(const batch& x) {
  lost_ += static_cast<std::uint64_t>(x.parts[0].view().shape().samples);
}

void normalizer::end_if_empty() {
  if (!end_ || !window_.empty() || recovering_)
    return;
  auto end = std::exchange(end_, std::nullopt).value();
  end.recoveries = recoveries_;
  end.records_lost += lost_;
  if (!failure_.empty())
    end.fail(failure_);
  syncnorm::compat::send(this, next_, end_atom_v, end);
}

} // namespace pipeline
