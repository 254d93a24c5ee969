#pragma once

#include "tests/actors/relay_tree.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::test {

using tree_type = replica_tree<block, block>;

/// Replica 0 owns the master, 1 and 2 are its slaves; a relay stands for 3 to
/// 12, of which 5 to 8 are behind a relay of their own.
struct tree_fixture : system_fixture {
  tree_fixture() = default;

  explicit tree_fixture(sync_options options) : options{std::move(options)} {}

  sync_options options{.layer = "bn1", .deadline = std::chrono::seconds{20}};
  tree_type tree{system, spawn_sync_master<block, block>(system, options,
                                                         sum_of_blocks())};
  block_master outer =
      tree.add_relay(tree.master(), "bn1", {3, 10}, merge_blocks);
  block_master inner = tree.add_relay(outer, "bn1", {5, 4}, merge_blocks);
  static constexpr std::int64_t replicas = 13;

  const block_master& home(std::int64_t identifier) {
    if (identifier < 3)
      return tree.master();
    return identifier >= 5 && identifier < 9 ? inner : outer;
  }

  void enlist_all() {
    for (std::int64_t i = 1; i < replicas; ++i)
      tree.enlist(home(i), replica_range{i, 1});
  }

  void enlist_all_but_five() {
    for (std::int64_t i = 1; i < replicas; ++i)
      if (i != 5)
        tree.enlist(home(i), replica_range{i, 1});
  }

  std::vector<outcome<block>> run(int round = 0) {
    return tree.run(replicas,
                    [round](std::int64_t i) { return block_of(i, round); });
  }

  /// All replicas but `missing` send, then `fault` happens; checks that all of
  /// them get the same error, with code `code` and the parts in its text.
  template <class Fault>
  void fails(std::int64_t missing, Fault fault, errc code,
             const std::vector<std::string>& parts) {
    enlist_all();
    for (auto& x : run())
      REQUIRE(x.value);
    std::vector<std::function<outcome<block>()>> waiting;
    for (std::int64_t i = 0; i < replicas; ++i)
      if (i != missing)
        waiting.push_back(tree.send(i, block_of(i)));
    fault();
    std::string text;
    for (auto& wait : waiting) {
      auto x = wait();
      CHECK_MESSAGE(x.failed(code, parts), x.text());
      CHECK((text.empty() || text == x.text()));
      text = x.text();
    }
    // They register again, and the same master and relays serve again.
    enlist_all();
    for (auto& x : run())
      CHECK(x.value == expected());
  }

  static block expected(int round = 0) {
    std::vector<identified<block>> all;
    for (std::int64_t i = 0; i < replicas; ++i)
      all.push_back({i, block_of(i, round)});
    return merge_blocks(all);
  }
};

struct impatient_fixture : tree_fixture {
  impatient_fixture()
      : tree_fixture{
          {.layer = "bn1", .deadline = std::chrono::milliseconds{300}}} {}
};

struct survivors_fixture : tree_fixture {
  survivors_fixture()
      : tree_fixture{{.layer = "bn1",
                      .deadline = std::chrono::seconds{20},
                      .policy = failure_policy::continue_with_survivors}} {}
};

} // namespace syncnorm::test
