// Registrations and messages that a relay, or a master before it, refuses.

#include "tests/actors/tree_fixture.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE_FIXTURE(tree_fixture, "a relay refuses replicas outside of its range "
                                "and ranges that overlap") {
  CHECK(tree.enlist(inner, 9).failed(
      errc::invalid_identifier,
      {"this relay stands for replicas 5 to 8, not for replica 9"}));
  tree.enlist(inner, replica_range{5, 1});
  CHECK(tree.enlist(outer, 6).failed(
      errc::duplicate_identifier,
      {"replica 6 overlaps the relay of replicas 5 to 8"}));
  auto rival = tree.add_relay(tree.master(), "bn1", {12, 4}, merge_blocks);
  CHECK(tree.enlist(rival, 13).failed(errc::duplicate_identifier,
                                      {"replicas 12 to 15", "3 to 12"}));
}

TEST_CASE_FIXTURE(tree_fixture, "a relay without a parent is refused, and "
                                "identifiers beyond the last with the reason") {
  CHECK_THROWS_WITH_AS(tree.add_relay({}, "bn1", {20, 2}, merge_blocks),
                       doctest::Contains("the parent's handle is null"), error);
  constexpr auto last = std::numeric_limits<std::int64_t>::max();
  for (auto range : {replica_range{last, 1}, replica_range{last - 1, 2}})
    CHECK_THROWS_WITH_AS(
        tree.add_relay(tree.master(), "bn1", range, merge_blocks),
        doctest::Contains("up to 2^63 - 2"), error);
  CHECK(tree.enlist(tree.master(), last)
            .failed(errc::invalid_identifier, {"up to 2^63 - 2"}));
  CHECK(tree.enlist(tree.master(), last - 1).value);
}

TEST_CASE_FIXTURE(tree_fixture, "a registration that a relay refuses after a "
                                "round disturbs nobody") {
  enlist_all();
  for (int round = 0; round < 3; ++round) {
    for (auto& x : run(round))
      CHECK_MESSAGE(x.value == expected(round), x.text());
    CHECK(tree.enlist(inner, 9).failed(errc::invalid_identifier));
    CHECK(tree.enlist(outer, -7).failed(errc::invalid_identifier));
  }
}

TEST_CASE_FIXTURE(tree_fixture, "a relay refuses another layer's parent, and "
                                "the master's own message") {
  auto astray = tree.add_relay(tree.master(), "bn2", {20, 2}, merge_blocks);
  CHECK(tree.enlist(astray, 20)
            .failed(errc::wrong_layer,
                    {"layer bn2, round 1: the relay of replicas 20 to 21 was "
                     "spawned for this layer, and its parent is of another "
                     "one"}));
  caf::scoped_actor self{system};
  auto lead = tree_type::later(run_master(self, inner, block{1}));
  CHECK(lead().failed(errc::invalid_argument, {"a relay has no owner"}));
  CHECK_THROWS_AS(tree.add_relay(tree.master(), "bn1", {0, 2}, merge_blocks),
                  error);
  CHECK_THROWS_AS(tree.add_relay(tree.master(), "bn1", {1, 0}, merge_blocks),
                  error);
  CHECK_THROWS_AS(tree.add_relay(tree.master(), "bn1", {1, 1}, nullptr), error);
}

TEST_CASE_FIXTURE(system_fixture, "a master whose callback cannot merge in "
                                  "parts refuses relays in words") {
  tree_type tree{
      system, spawn_sync_master<block, block>(
                  system, {.layer = "bn1"}, [](std::span<identified<block>>) {
                    return std::vector<identified<block>>{};
                  })};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  CHECK(tree.enlist(relay, 1).failed(errc::invalid_argument,
                                     {"layer bn1", "sync_reduction"}));
}

TEST_CASE_FIXTURE(system_fixture, "parts that are not what they say end the "
                                  "round as malformed") {
  struct lie {
    std::vector<std::int64_t> first;
    caf::message values;
  };
  std::vector<lie> lies{
      {{}, caf::message{}},
      {{2}, caf::make_message(block{1}, block{2})},
      {{3, 2}, caf::make_message(block{1}, block{2})},
      {{2, 2}, caf::make_message(block{1}, block{2})},
      {{1}, caf::make_message(block{1})},
      {{2, 4, 6}, caf::make_message(block{1}, block{2}, block{3})},
      {{2}, caf::make_message(std::string{"a block"})},
  };
  for (auto& x : lies) {
    tree_type tree{system, spawn_sync_master<block, block>(
                               system, {.layer = "bn1"}, sum_of_blocks())};
    caf::scoped_actor stranger{system};
    outcome<slave_ticket> ticket;
    detail::request(stranger, tree.master(), register_relay_atom_v,
                    std::int64_t{2}, std::int64_t{4})
        .receive([&](slave_ticket& t) { ticket(t); },
                 [&](caf::error& e) { ticket(e); });
    auto owner = tree.send(0, block{1});
    auto answer = tree_type::later(detail::request(
        stranger, tree.master(), run_relay_atom_v, ticket.value.value().first,
        relay_parts{caf::timespan{-1}, x.first, x.values}));
    CHECK(answer().failed(errc::malformed_message,
                          {"layer bn1, round 1", "replicas 2 to 5"}));
    CHECK(owner().failed(errc::malformed_message));
  }
}
