// What rounds between several processes on one machine cost: against plain CAF
// requests of the same bytes; large arrays against a plain TCP connection; both
// with TLS against without; and the trainer in two processes against one. All
// in one run, in turn; before the timing, the answers are checked.
//
// `--filter=rounds`, `layers`, `bulk`, `tls` or `trainer` runs only that part.

#include "bench/network/contestants.hpp"
#include "bench/network/peers.hpp"
#include "bench/network/plain_tcp.hpp"
#include "bench/network/trainers.hpp"
#include "bench/support.hpp"
#include "tests/trainer/certificates.hpp"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace syncnorm;
using namespace syncnorm::bench;

/// A row whose ratio should be `goal` or less.
row at_most(double goal, std::string name, double ours, double theirs,
            std::string unit) {
  row result{std::move(name),
             ours,
             theirs,
             std::move(unit),
             ours / theirs,
             fmt::format("<= {}", goal),
             true};
  result.met = result.ratio <= goal;
  return result;
}

/// Rounds of several layers at the same time.
void compare_layers(caf::actor_system& system, const caf::actor& peer,
                    const options& given, report& out) {
  constexpr std::int64_t times = 500;
  constexpr std::size_t channels = 256;
  constexpr std::size_t layers = 8;
  auto one = make_rounds(system, {peer}, 2 * channels);
  auto many = make_layers(system, {peer}, 2 * channels, layers);
  std::vector<candidate> candidates{{"one layer", [&] { one->run(times); }},
                                    {"8 layers", [&] { many->run(times); }}};
  auto taken = time_in_turn(candidates, given.rounds);
  auto us = [&](const timing& t) { return t.median * 1e6 / times; };
  out.add(reported("rounds of 8 layers at a time / of one", us(taken[1]),
                   us(taken[0]), "us", us(taken[1]) / us(taken[0])));
}

/// Each answer is checked by its receiver.
void compare_rounds(caf::actor_system& system,
                    const std::vector<caf::actor>& peers, const options& given,
                    report& out) {
  constexpr std::int64_t times = 500;
  constexpr std::size_t channels = 256;
  for (std::size_t others : {1U, 3U}) {
    std::vector<caf::actor> some(
        peers.begin(), peers.begin() + static_cast<std::ptrdiff_t>(others));
    auto ours = make_rounds(system, some, 2 * channels);
    auto theirs = make_requests(system, some, 2 * channels);
    std::vector<candidate> candidates{
        {fmt::format("round/{} processes", others + 1),
         [&] { ours->run(times); }},
        {fmt::format("requests/{} processes", others + 1),
         [&] { theirs->run(times); }}};
    auto taken = time_in_turn(candidates, given.rounds);
    for (std::size_t i = 0; i < candidates.size(); ++i)
      out.add(candidates[i].name, taken[i],
              times * static_cast<std::int64_t>(others * channels * 16));
    auto us = [&](const timing& t) { return t.median * 1e6 / times; };
    out.add(at_most(
        1.3,
        fmt::format("round of {} processes / plain CAF requests", others + 1),
        us(taken[0]), us(taken[1]), "us"));
  }
}

std::string name_of(const chunking& cut) {
  auto name =
      fmt::format("{} KiB, {} at a time", cut.elements * 4 / 1024, cut.window);
  return cut.here ? name : name + ", by CAF's workers";
}

/// Sends `values` to the process of `peer`, after a check that they arrive
/// intact.
network_contestant_ptr make_bulk(caf::actor_system& system,
                                 const caf::actor& peer,
                                 std::span<const float> values, double sum,
                                 const chunking& cut) {
  auto receiver = make_receiver(system, peer, cut.here);
  auto result = make_chunks(system, receiver, values, cut);
  result->run(1);
  if (total_of(system, receiver) != sum)
    throw std::runtime_error{"bench/network: chunks arrive as something else"};
  return result;
}

/// How gradients are sent: 512 KiB, 16 at a time.
constexpr chunking usual{std::size_t{1} << 17, 16, true};

/// 64 MiB, cut in different ways.
void compare_bulk(caf::actor_system& system, const caf::actor& peer, int socket,
                  const options& given, report& out) {
  constexpr std::size_t mebi = std::size_t{1} << 20;
  constexpr std::size_t elements = 16 * mebi;
  const auto values = bulk_values(elements);
  const chunking cuts[]{
      usual, {mebi / 16, 32, true}, {mebi / 8, 16, false}, {elements, 1, true}};
  std::vector<network_contestant_ptr> ours;
  std::vector<candidate> candidates{
      {"plain TCP", [&] { (void) send_plainly(socket, values, false); }}};
  auto sum = send_plainly(socket, values, true);
  for (const auto& cut : cuts) {
    auto* one =
        ours.emplace_back(make_bulk(system, peer, values, sum, cut)).get();
    candidates.push_back({name_of(cut), [one] { one->run(1); }});
  }
  auto taken = time_in_turn(candidates, given.rounds);
  auto rate = [&](std::size_t i) {
    out.add("bulk/" + candidates[i].name, taken[i], elements * 4);
    return elements * 4 / taken[i].median / 1e6;
  };
  auto plain = rate(0);
  for (std::size_t i = 1; i < taken.size(); ++i) {
    auto name = fmt::format("64 MiB: {} / plain TCP", candidates[i].name);
    auto mine = rate(i);
    out.add(i == 1 ? at_least(0.8, name, mine, plain, "MB/s", mine / plain)
                   : reported(name, mine, plain, "MB/s", mine / plain));
  }
}

/// An actor system of this process, and an actor of another one that it knows.
struct connected {
  caf::actor_system& system;
  caf::actor peer;
};

/// What TLS adds to a round and to 64 MiB in chunks.
void compare_tls(const connected& secure, const connected& plain,
                 const options& given, report& out) {
  constexpr std::int64_t times = 500;
  constexpr std::size_t channels = 256;
  const auto values = bulk_values(std::size_t{1} << 24);
  auto sum = std::accumulate(values.begin(), values.end(), 0.0);
  std::vector<network_contestant_ptr> who;
  std::vector<candidate> candidates;
  for (const auto* on : {&secure, &plain}) {
    auto name = on == &secure ? "with TLS" : "without TLS";
    auto* rounds =
        who.emplace_back(make_rounds(on->system, {on->peer}, 2 * channels))
            .get();
    candidates.push_back(
        {fmt::format("round {}", name), [rounds] { rounds->run(times); }});
    auto* bulk =
        who.emplace_back(make_bulk(on->system, on->peer, values, sum, usual))
            .get();
    candidates.push_back(
        {fmt::format("bulk {}", name), [bulk] { bulk->run(1); }});
  }
  auto taken = time_in_turn(candidates, given.rounds);
  auto us = [&](std::size_t i) { return taken[i].median * 1e6 / times; };
  auto rate = [&](std::size_t i) {
    return static_cast<double>(values.size() * 4) / taken[i].median / 1e6;
  };
  out.add(reported("round of 2 processes by TLS / without", us(0), us(2), "us",
                   us(0) / us(2)));
  out.add(reported(fmt::format("64 MiB: {}, by TLS / without", name_of(usual)),
                   rate(1), rate(3), "MB/s", rate(1) / rate(3)));
}

int run(int argc, char** argv) {
  detail::init_types<caf::id_block::syncnorm,
                     caf::id_block::syncnorm_bench_network>();
  auto given = parse_options(argc, argv);
  require_part(given, {"rounds", "layers", "bulk", "tls", "trainer"});
  std::optional<train::certificates> files;
  std::optional<tls_options> tls;
  if (given.wants("tls"))
    tls = {files.emplace().file("node.pem"), files->file("node.key"),
           files->file("ca.pem")};
  peer_processes others{3};
  std::optional<peer_processes> secure;
  if (tls)
    secure.emplace(1, tls);
  network_config config;
  caf::actor_system system{config};
  auto peers = others.connect(system);
  report out{fmt::format("The network: several processes on 127.0.0.1; the "
                         "trainer: medians of {} rounds",
                         trainer_rounds(given)),
             given};
  if (given.wants("rounds"))
    compare_rounds(system, peers, given, out);
  if (given.wants("layers"))
    compare_layers(system, peers[0], given, out);
  if (given.wants("bulk"))
    compare_bulk(system, peers[0], others.socket(), given, out);
  if (tls) {
    network_config by_tls{tls};
    caf::actor_system system_by_tls{by_tls};
    compare_tls({system_by_tls, secure->connect(system_by_tls)[0]},
                {system, peers[0]}, given, out);
  }
  if (given.wants("trainer"))
    compare_trainers(given, out);
  out.finish();
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, run);
}
