#include "trainer/run/fleet.hpp"

#include "trainer/failure.hpp"
#include "trainer/plan/endpoint.hpp"
#include "trainer/run/error_text.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <tuple>
#include <utility>

namespace syncnorm::train {

namespace {

/// How long the others have to leave when the run has ended.
constexpr caf::timespan farewell = std::chrono::seconds{10};

std::string name_of(const process_entry& x) {
  auto n = x.replicas.size();
  return fmt::format("process {} ({}, {} replica{})", x.number, x.name, n,
                     n == 1 ? "" : "s");
}

/// By rank; those without one come last, in order of arrival.
auto place_of(const process_entry& x) {
  return std::tuple{x.rank < 0, x.rank, x.number};
}

bool is_here(const process_entry& x) {
  return x.gone.empty();
}

/// Is told whom TLS refused. It is not published: its messages come from this
/// process.
caf::behavior pass_on_refusals(caf::event_based_actor* self,
                               const host_actor& host) {
  compat::monitor(
      self, caf::actor_cast<caf::actor>(host),
      [self](const caf::actor_addr&, const caf::error&) { self->quit(); });
  return {[self, host](std::string& line) {
    compat::send(self, host, refused_atom_v, std::move(line));
  }};
}

} // namespace

fleet::fleet(caf::actor_system& system, const settings& options,
             std::vector<replica_actor> own)
    : system_{system},
      options_{options},
      own_{std::move(own)},
      group_{system, own_, options.round_deadline(), options.fan_in} {}

fleet::fleet(caf::actor_system& system, const settings& options,
             std::vector<replica_actor> own, const std::string& identity,
             const note_function& note, const std::function<bool()>& stop)
    : fleet{system, options, std::move(own)} {
  host_ = spawn_host(system,
                     {identity, options_.workers, options_.on_failure,
                      own_.size(), options_.batch},
                     changes_);
  note_ = note;
  publish();
  try {
    others_ = await_others(stop);
  } catch (const std::exception& x) {
    // Tells those that have come why the run ends without the others.
    auto why = first_line(x.what());
    end(false, why);
    throw failure{"--serve: " + why};
  }
  regroup();
}

fleet::~fleet() {
  end(false, "the run has failed");
}

void fleet::publish() {
  auto where = parse_endpoint("serve", options_.serve);
  publish_options how{where.port, where.host, options_.insecure};
  // A server that has just ended leaves its port in a state in which only this
  // option lets it be used; two servers at a time are refused all the same.
  how.reuse = true;
  doorkeeper_ = system_.spawn(pass_on_refusals, host_);
  how.on_refusal = doorkeeper_;
  auto port = publish_master(system_, host_, how);
  if (!port)
    throw failure{fmt::format("--serve: {} cannot be had: {}", to_string(where),
                              text_of(port.error()))};
  where.port = *port;
  note_(fmt::format("serving at {}: waiting for {} process{}{}",
                    to_string(where), options_.workers,
                    options_.workers == 1 ? "" : "es",
                    options_.has_tls() ? ", by TLS" : ""));
}

void fleet::print_refusals() {
  caf::scoped_actor self{system_};
  compat::request(self, host_, refusals_atom_v)
      .receive(
          [this](const std::vector<std::string>& lines) {
            for (const auto& line : lines)
              note_(line);
          },
          [](const caf::error&) {});
}

std::vector<process_entry>
fleet::await_others(const std::function<bool()>& stop) {
  using clock = std::chrono::steady_clock;
  auto until = clock::now()
               + std::chrono::duration_cast<clock::duration>(
                   std::chrono::duration<double>{options_.patience});
  gone_processes gone;
  // Waits in short intervals, to check for Ctrl-C between them.
  for (;;) {
    // A process that leaves after the roll changes this count.
    seen_ = changes_->load();
    auto roll = call_roll(options_.workers, std::chrono::milliseconds{100});
    dismiss_gone(roll);
    auto count = static_cast<std::size_t>(std::ranges::count_if(roll, is_here));
    print_refusals();
    note_gone(roll, gone);
    if (count >= options_.workers)
      return roll;
    if (stop() || clock::now() >= until)
      throw failure{fmt::format(
          "{} of {} processes are there{}{}", count, options_.workers,
          stop() ? std::string{"; stopped"}
                 : fmt::format(" after {:g} s", options_.patience),
          gone.empty() ? "" : "; " + gone.rbegin()->second)};
  }
}

void fleet::note_gone(const std::vector<process_entry>& roll,
                      gone_processes& told) {
  for (const auto& x : roll)
    if (!is_here(x) && !told.contains(x.number)) {
      auto line = fmt::format("{} {}", name_of(x), x.gone);
      note_(line);
      told.emplace(x.number, std::move(line));
    }
}

std::vector<process_entry> fleet::call_roll(std::uint64_t count,
                                            caf::timespan patience) {
  std::vector<process_entry> result;
  caf::error problem;
  caf::scoped_actor self{system_};
  compat::request(self, host_, roll_atom_v, count, patience)
      .receive([&](std::vector<process_entry>& x) { result = std::move(x); },
               [&](caf::error& x) { problem = std::move(x); });
  if (problem != caf::none)
    throw failure{text_of(problem)};
  return result;
}

bool fleet::has_changed() const noexcept {
  return changes_->load(std::memory_order_relaxed) != seen_;
}

void fleet::dismiss(std::uint64_t number, const std::string& why) {
  caf::scoped_actor self{system_};
  compat::send(self, host_, dismiss_atom_v, number, why);
}

void fleet::dismiss_gone(const std::vector<process_entry>& roll) {
  for (const auto& x : roll)
    if (!is_here(x))
      dismiss(x.number, x.gone);
}

void fleet::drop_silent() {
  auto answers = group_.who_is_there();
  auto next = answers.begin() + static_cast<std::ptrdiff_t>(own_.size());
  std::map<std::uint64_t, std::string> silent;
  std::map<std::uint64_t, std::string> cut_off;
  for (const auto& process : others_)
    for (std::size_t i = 0; i < process.replicas.size(); ++i, ++next)
      if (!*next)
        silent[process.number] = "does not answer";
      else if (!(*next)->empty())
        cut_off[process.number] = printable(**next, 1000);
  // The processes below a silent one do not reach it either.
  for (const auto& [number, why] : silent.empty() ? cut_off : silent)
    dismiss(number, why);
}

void fleet::drop(const std::vector<culprit>& culprits) {
  auto is_of = [](const std::vector<replica_actor>& all) {
    return [&](const culprit& x) {
      return std::ranges::find(all, x.who) != all.end();
    };
  };
  if (std::ranges::any_of(culprits, is_of(own_)))
    return;
  for (const auto& process : others_) {
    auto found = std::ranges::find_if(culprits, is_of(process.replicas));
    if (found != culprits.end())
      dismiss(process.number, fmt::format("has failed: {}", found->why));
  }
}

std::vector<std::string> fleet::update() {
  if (!host_)
    return {};
  seen_ = changes_->load();
  print_refusals();
  auto roll = call_roll(0, {});
  dismiss_gone(roll);
  std::vector<std::string> notes;
  for (const auto& x : roll) {
    auto was = std::ranges::find(others_, x.number, &process_entry::number)
               != others_.end();
    if (was && !is_here(x))
      notes.push_back(fmt::format("{} {}", name_of(x), x.gone));
    if (!was && is_here(x))
      notes.push_back(fmt::format("{} has joined", name_of(x)));
  }
  if (!notes.empty()) {
    others_ = std::move(roll);
    regroup();
  }
  return notes;
}

void fleet::regroup() {
  std::erase_if(others_, [](const auto& x) { return !is_here(x); });
  std::ranges::sort(others_, {}, place_of);
  auto all = own_;
  for (const auto& process : others_)
    all.insert(all.end(), process.replicas.begin(), process.replicas.end());
  group_.replace(std::move(all));
}

void fleet::end(bool good, const std::string& text) {
  if (!host_)
    return;
  print_refusals();
  caf::scoped_actor self{system_};
  compat::request(self, host_, end_atom_v, good, text, farewell)
      .receive([](bool) {}, [](const caf::error&) {});
  system_.middleman().unpublish(host_, 0);
  caf::anon_send_exit(host_, caf::exit_reason::user_shutdown);
  host_ = nullptr;
  doorkeeper_ = nullptr;
}

} // namespace syncnorm::train
