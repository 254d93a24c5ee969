// Runs of more processes than the fan-in.

#include "trainer/exact_losses.hpp"
#include "trainer/run_processes.hpp"
#include "trainer/stranger.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

using namespace syncnorm::train;

TEST_CASE("above the fan-in processes form a tree, which changes no bit: five "
          "processes with a replica each, and four with two") {
  auto options = small + arguments{"--epochs=1"};
  const arguments tree{"--fan-in=2"};
  auto whole = run(1, "cpu*5", options);
  auto five = run(5, "cpu", options + tree);
  CHECK(is_same(five, whole));
  // The tree is there: without it there are five, as the next test says.
  CHECK(contains(five.said, "\n3 messages a round and layer"));
  auto four = run(4, "cpu*2", options + tree);
  CHECK(is_same(four, run(1, "cpu*8", options)));
  CHECK(contains(four.said, "\n4 messages a round and layer"));
}

TEST_CASE("up to the fan-in one message a process, and one for each replica of "
          "the one that serves, come to that") {
  auto options = small + arguments{"--epochs=1"};
  CHECK(
      contains(run(5, "cpu", options).said, "\n5 messages a round and layer"));
  CHECK(contains(run(2, "cpu*2", options).said,
                 "\n3 messages a round and layer"));
}

namespace {

/// A run of five processes that form a tree: the first one serves, the second
/// takes in what the third sends, and the third what the fourth does.
struct running_tree {
  std::vector<child> others;
  server first;

  explicit running_tree(const arguments& options)
      : first{serve(options + shape, 4)} {
    for (int i = 0; i < 4; ++i)
      join_one(options);
    auto runs = first.process->wait_for("epoch");
    INFO(first.process->output());
    REQUIRE(runs);
  }

  /// Joins one more, as the last in the order of the tree.
  void join_one(const arguments& options) {
    auto& one = others.emplace_back(join(first.where, options + shape));
    REQUIRE(one->wait_for("joined"));
  }

  inline static const arguments shape{"--fan-in=2", "--devices=cpu"};
};

} // namespace

TEST_CASE("a process in the middle of the tree that is killed or stopped ends "
          "the run for all, who learn its name") {
  for (auto number : {SIGKILL, SIGSTOP}) {
    CAPTURE(number);
    running_tree tree{endless};
    auto& middle = *tree.others[1];
    auto name = fmt::format(":{}, 1 replica) ", middle.id());
    middle.signal(number);
    require_failure(*tree.first.process, name);
    for (std::size_t i : {0U, 2U, 3U})
      require_failure(*tree.others[i], name);
    middle.kill(SIGKILL);
  }
}

TEST_CASE("an address of --listen that cannot be had ends the run for all, by "
          "the name of its process") {
  auto first = serve(small + running_tree::shape, 3);
  // Two groups of two: one of these has another process below it.
  std::vector<child> others;
  auto taken = "--listen=" + first.where;
  for (int i = 0; i < 3; ++i)
    others.push_back(
        join(first.where, small + running_tree::shape + arguments{taken}));
  auto text = fmt::format("--listen: {} cannot be had: ", first.where);
  require_failure(*first.process, text);
  auto is_named = [&](const child& x) {
    return contains(first.process->output(),
                    fmt::format(":{}: {}", x->id(), text));
  };
  CHECK(std::ranges::count_if(others, is_named) == 1);
  for (auto& x : others)
    require_failure(*x, text);
}

TEST_CASE(
    "a process in the middle of the tree names whom its own port refuses, "
    "each of them once") {
  auto first = serve(endless + running_tree::shape, 3);
  // The last one has the third above it.
  auto port = stranger{0}.port();
  auto door = fmt::format("--listen=127.0.0.1:{}", port);
  std::vector<child> others;
  for (const auto& own : {arguments{}, arguments{door}, arguments{}}) {
    others.push_back(join(first.where, endless + running_tree::shape + own));
    REQUIRE(others.back()->wait_for("joined"));
  }
  REQUIRE(first.process->wait_for("epoch"));
  auto& middle = *others[1];
  const std::string refusal = "syncnorm-train: 127.0.0.1 is refused: what it "
                              "sent is no message of CAF's";
  auto some = disturb(port);
  auto more = disturb(port);
  REQUIRE(middle.wait_for(refusal));
  REQUIRE(first.process->wait_for("epoch"));
  CHECK(first.process->kill(SIGINT) == 0);
  require_good_end(middle);
  CHECK_FALSE(contains(middle.output(), refusal));
}

TEST_CASE("with --on-failure=continue those who are left form another tree, "
          "exactly, and one that joins again has a place in it") {
  scratch_folder folder;
  // Nobody waits for a process that is gone.
  running_tree tree{endless_run + traced(folder)
                    + arguments{"--deadline=3000"}};
  tree.others[0]->kill(SIGKILL);
  REQUIRE(tree.first.process->wait_for("after step"));
  tree.join_one(endless_run);
  REQUIRE(tree.first.process->wait_for("after step"));
  tree.others[1]->kill(SIGKILL);
  REQUIRE(tree.first.process->wait_for("after step"));
  REQUIRE(tree.first.process->wait_for("epoch"));
  CHECK(tree.first.process->kill(SIGINT) == 0);
  for (std::size_t i : {2U, 3U, 4U})
    require_good_end(*tree.others[i]);
  require_losses_of_one(folder);
}
