#include "tests/actors/together.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

// Several batches in one message, on CPUs.

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// `count` copies on CPUs.
slaves make_slaves(caf::actor_system& system, batch_norm_options options,
                   std::size_t count, dtype type = dtype::float64) {
  options.channels = 3;
  options.type = type;
  std::vector<std::unique_ptr<batch_norm_stage>> stages;
  for (std::size_t r = 0; r < count; ++r)
    stages.push_back(std::make_unique<batch_norm_stage>(system, options));
  execute_replication_callbacks(stages);
  return {system, std::move(stages)};
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "batches asked for together come out as those "
                                 "asked for one by one, bit for bit, and leave "
                                 "the same state and pass ids") {
  for (auto type : {dtype::float64, dtype::float32, dtype::bfloat16})
    for (auto online : {true, false})
      for (std::size_t count : {1, 2, 3}) {
        CAPTURE(to_string(type));
        CAPTURE(online);
        CAPTURE(count);
        batch_norm_options options{.name = "stream", .online = online};
        auto xs = make_parts(count, 10, type);
        auto first = make_slaves(system, options, count, type);
        auto second = make_slaves(system, options, count, type);
        auto want = one_by_one(first, xs);
        auto got = together(second, xs);
        CHECK(got.pass_ids == want.pass_ids);
        CHECK((got.pass_ids[0] == 0) == online);
        for (std::size_t i = 0; i < want.ys.size(); ++i)
          CHECK(same_bits(got.ys[i], want.ys[i]));
        CHECK(second.state() == first.state());
      }
}

TEST_CASE_FIXTURE(layer_fixture, "each of the batches asked for together has "
                                 "a backward pass of its own") {
  auto xs = make_parts(2, 4);
  auto first = make_slaves(system, {.name = "stream"}, 2);
  auto second = make_slaves(system, {.name = "stream"}, 2);
  auto want = backward(first, xs, one_by_one(first, xs));
  auto got = backward(second, xs, together(second, xs));
  REQUIRE(want.size() == 8);
  for (std::size_t i = 0; i < want.size(); ++i)
    CHECK(same_bits(got[i], want[i]));
}

TEST_CASE_FIXTURE(layer_fixture, "no batches, and one among several that does "
                                 "not fit, are refused before anything is "
                                 "learned") {
  tensor_memory other{
      make_layout(dtype::float64, std::array<std::int64_t, 2>{2, 5})};
  auto xs = make_parts(1, 4)[0];
  for (auto online : {true, false}) {
    auto to = make_slaves(system, {.name = "stream", .online = online}, 1);
    CHECK(error_of(to.ask(0, std::vector<shared_tensor>{}))
          == errc::invalid_argument);
    CHECK(error_of(to.ask(0, {xs[1], other.share()})) == errc::shape_mismatch);
    auto fresh = make_slaves(system, {.name = "stream", .online = online}, 1);
    CHECK(to.state() == fresh.state());
  }
}

TEST_CASE_FIXTURE(layer_fixture, "copies asked for different numbers of "
                                 "batches get one error that says so") {
  auto xs = make_parts(2, 3);
  auto to = make_slaves(system, {.name = "stream", .online = true}, 2);
  auto first = to.ask(0, xs[0]);
  auto second = to.ask(1, {xs[1][0], xs[1][1]});
  for (const auto& reason :
       {error_of(std::move(first)), error_of(std::move(second))}) {
    CHECK(reason == errc::invalid_argument);
    CHECK(describe(reason).find("replica 1 sent 2 batches in one message, "
                                "replica 0 3")
          != std::string::npos);
  }
}
