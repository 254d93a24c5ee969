#include "trainer/run/host.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/refusal_list.hpp"

#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

/// A host, as the trainer and applicants of its own process ask it.
struct asked_host {
  caf::actor_system system{configuration()};
  caf::scoped_actor trainer{system};
  host_actor host = spawn_host(system, {"same", 3, failure_kind::go_on, 2, 3},
                               std::make_shared<std::atomic<std::uint64_t>>());

  ~asked_host() {
    caf::anon_send_exit(host, caf::exit_reason::user_shutdown);
  }

  /// Why it does not take that one; empty if it does.
  std::string join(caf::scoped_actor& self, const std::string& name,
                   std::uint64_t start) {
    auto own = caf::actor_cast<replica_actor>(caf::actor{self});
    application app{name, -1, "same", {own}, start};
    std::string why;
    detail::request(self, host, join_atom_v, app)
        .receive([](std::uint64_t) {},
                 [&](const caf::error& x) { why = train::text_of(x); });
    return why;
  }

  /// Ends the run, and waits for nobody to go.
  void end(bool good, const std::string& text) {
    detail::request(trainer, host, end_atom_v, good, text, caf::timespan{})
        .receive([](bool) {}, [](const caf::error&) {});
  }

  /// What the first that has joined is told who asks for the end.
  std::string stay(caf::scoped_actor& self) {
    std::string told;
    detail::request_within(self, std::chrono::seconds{20}, host, stay_atom_v,
                           std::uint64_t{1})
        .receive([&](const std::string& text) { told = "good: " + text; },
                 [&](const caf::error& x) { told = train::text_of(x); });
    return told;
  }

  std::vector<process_entry> roll() {
    std::vector<process_entry> result;
    detail::request(trainer, host, roll_atom_v, std::uint64_t{0},
                    caf::timespan{})
        .receive([&](std::vector<process_entry>& x) { result = std::move(x); },
                 [](const caf::error&) {});
    return result;
  }
};

} // namespace

TEST_CASE("a process is called by what can be printed of its name") {
  asked_host one;
  caf::scoped_actor guest{one.system};
  CHECK(one.join(guest, "a\nb\x1b[2J:1", 7).empty());
  REQUIRE(one.roll().size() == 1);
  CHECK(one.roll()[0].name == "a?b?[2J:1");
}

TEST_CASE(
    "whoever is refused again and again is told of once, and of a hundred "
    "lines the last one says that there are more") {
  refusal_list told;
  const std::string text = "127.0.0.1 is refused: no\nbody";
  CHECK(told.add(text) == printable(text, 1000));
  CHECK_FALSE(told.add(text));
  for (std::size_t n = 1; n + 1 < refusal_list::max_lines; ++n) {
    auto line = "number " + std::to_string(n);
    CHECK(told.add(line) == line);
  }
  CHECK_FALSE(told.add("number 1"));
  CHECK(told.add("one more") == "more are refused, and not listed");
  CHECK_FALSE(told.add("another one"));
}

TEST_CASE("two processes may have one name, as in two containers, but one does "
          "not join twice") {
  asked_host one;
  caf::scoped_actor first{one.system};
  caf::scoped_actor second{one.system};
  caf::scoped_actor third{one.system};
  CHECK(one.join(first, "trainer:1", 7).empty());
  CHECK(one.join(second, "trainer:1", 8).empty());
  CHECK(contains(one.join(third, "trainer:1", 8), "it has joined already"));
}

TEST_CASE("of a run that has begun, nobody becomes a part for whom a batch has "
          "no sample") {
  asked_host one;
  caf::scoped_actor first{one.system};
  caf::scoped_actor second{one.system};
  std::ignore = one.roll();
  CHECK(one.join(first, "a:1", 1).empty());
  CHECK(one.join(second, "b:2", 2)
        == "b:2 is refused: with its 1 there would be 4 replicas, more than "
           "the 3 samples of a batch");
}

TEST_CASE("a process that is gone is on the roll once more, and then no more") {
  asked_host one;
  {
    caf::scoped_actor guest{one.system};
    CHECK(one.join(guest, "a:1", 7).empty());
  }
  auto roll = one.roll();
  while (!roll.empty() && roll[0].gone.empty())
    roll = one.roll();
  REQUIRE(roll.size() == 1);
  CHECK(roll[0].gone == "is gone");
  CHECK(one.roll().empty());
}

TEST_CASE("a process that has joined and asks for the end after it is told it "
          "as well") {
  for (auto good : {true, false}) {
    asked_host one;
    caf::scoped_actor guest{one.system};
    REQUIRE(one.join(guest, "a:1", 7).empty());
    one.end(good, "why");
    CHECK(one.stay(guest) == (good ? "good: why" : "why"));
  }
}
