#include "syncnorm/batch_norm_stage.hpp"
#include "syncnorm/compat.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

// Several batches in one message.

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

constexpr std::int64_t channels = 3;

/// Copies of a layer as slave actors.
struct slaves {
  caf::scoped_actor self;
  std::vector<std::unique_ptr<batch_norm_stage>> stages;

  slaves(caf::actor_system& system, batch_norm_options options,
         std::size_t count, dtype type = dtype::float64)
      : self{system} {
    options.channels = channels;
    options.type = type;
    for (std::size_t r = 0; r < count; ++r)
      stages.push_back(std::make_unique<batch_norm_stage>(system, options));
    execute_replication_callbacks(stages);
  }

  // begin: together
  auto ask(std::size_t r, std::vector<shared_tensor> xs) {
    return compat::request(self, stages[r]->slave(), forward_atom_v,
                           shared_tensors{std::move(xs)});
  }
  // end: together

  auto ask(std::size_t r, const shared_tensor& x) {
    return compat::request(self, stages[r]->slave(), forward_atom_v, x);
  }

  [[nodiscard]] std::vector<double> state() {
    release_replicas(stages);
    std::vector<double> result;
    for (auto& stage : stages)
      for (const auto& array : stage->replica().state())
        std::visit(
            [&](auto values) {
              result.insert(result.end(), values.begin(), values.end());
            },
            array.values);
    return result;
  }
};

struct answers {
  std::vector<shared_tensor> ys;
  std::vector<std::uint64_t> tickets;
};

template <class Pending>
caf::error error_of(Pending pending) {
  caf::error result;
  std::move(pending).receive(
      [](const shared_tensors&, std::uint64_t) {},
      [&](const caf::error& reason) { result = reason; });
  return result;
}

/// Parts of `count` copies of some batches: unequal, some of them empty.
std::vector<std::vector<shared_tensor>>
make_parts(std::size_t count, std::size_t batches,
           dtype type = dtype::float64) {
  std::mt19937 random{3};
  std::vector<std::vector<shared_tensor>> result(count);
  for (std::size_t k = 0; k < batches; ++k)
    for (std::size_t r = 0; r < count; ++r) {
      std::vector<std::int64_t> sizes{
          static_cast<std::int64_t>((2 * k + r) % 4), channels};
      auto x = std::make_shared<tensor>(make_layout(type, sizes));
      fill(*x, random, 100, 3);
      result[r].emplace_back(x->view(), x);
    }
  return result;
}

answers one_by_one(slaves& to,
                   const std::vector<std::vector<shared_tensor>>& xs) {
  answers result;
  for (std::size_t k = 0; k < xs[0].size(); ++k) {
    using pending = decltype(to.ask(0, xs[0][k]));
    std::vector<pending> open;
    for (std::size_t r = 0; r < xs.size(); ++r)
      open.push_back(to.ask(r, xs[r][k]));
    for (auto& x : open)
      std::move(x).receive(
          [&](const shared_tensor& y, std::uint64_t ticket) {
            result.ys.push_back(y);
            result.tickets.push_back(ticket);
          },
          [](const caf::error& reason) { FAIL(describe(reason)); });
  }
  return result;
}

/// In groups of 1, 2, 3, ... batches, all asked for at once.
answers together(slaves& to,
                 const std::vector<std::vector<shared_tensor>>& xs) {
  auto copies = xs.size();
  auto batches = xs[0].size();
  answers result{std::vector<shared_tensor>(batches * copies),
                 std::vector<std::uint64_t>(batches * copies)};
  using pending = decltype(to.ask(0, std::vector<shared_tensor>{}));
  struct group {
    std::size_t r, first, size;
    pending answer;
  };
  std::vector<group> open;
  for (std::size_t size = 1, first = 0; first < batches; first += size++) {
    size = std::min(size, batches - first);
    for (std::size_t r = 0; r < copies; ++r) {
      auto begin = xs[r].begin() + static_cast<std::ptrdiff_t>(first);
      open.push_back(
          {r, first, size,
           to.ask(r, {begin, begin + static_cast<std::ptrdiff_t>(size)})});
    }
  }
  for (auto& x : open)
    std::move(x.answer).receive(
        [&](const shared_tensors& ys, std::uint64_t ticket) {
          REQUIRE(ys.each.size() == x.size);
          for (std::size_t i = 0; i < x.size; ++i) {
            auto at = (x.first + i) * copies + x.r;
            result.ys[at] = ys.each[i];
            result.tickets[at] = ticket == 0 ? 0 : ticket + i;
          }
        },
        [](const caf::error& reason) { FAIL(describe(reason)); });
  return result;
}

bool same_bits(const shared_tensor& x, const shared_tensor& y) {
  return x.view().shape() == y.view().shape()
         && (x.bytes() == 0
             || std::memcmp(x.view().data(), y.view().data(), x.bytes()) == 0);
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "batches asked for together come out as those "
                                 "asked for one by one, bit for bit, and leave "
                                 "the same state and tickets") {
  for (auto type : {dtype::float64, dtype::float32, dtype::bfloat16})
    for (auto online : {true, false})
      for (std::size_t count : {1, 2, 3}) {
        CAPTURE(to_string(type));
        CAPTURE(online);
        CAPTURE(count);
        batch_norm_options options{.name = "stream", .online = online};
        auto xs = make_parts(count, 10, type);
        slaves first{system, options, count, type};
        slaves second{system, options, count, type};
        auto want = one_by_one(first, xs);
        auto got = together(second, xs);
        CHECK(got.tickets == want.tickets);
        CHECK((got.tickets[0] == 0) == online);
        for (std::size_t i = 0; i < want.ys.size(); ++i)
          CHECK(same_bits(got.ys[i], want.ys[i]));
        CHECK(second.state() == first.state());
      }
}

TEST_CASE_FIXTURE(layer_fixture, "each of the batches asked for together has "
                                 "a backward pass of its own") {
  auto xs = make_parts(2, 4);
  slaves first{system, {.name = "stream"}, 2};
  slaves second{system, {.name = "stream"}, 2};
  auto backward = [&](slaves& to, const answers& of) {
    using pending = decltype(compat::request(to.self, to.stages[0]->slave(),
                                             backward_atom_v, std::uint64_t{},
                                             shared_tensor{}));
    std::vector<pending> open;
    std::vector<shared_tensor> result;
    for (std::size_t k = 0; k < 4; ++k)
      for (std::size_t r = 0; r < 2; ++r)
        open.push_back(compat::request(to.self, to.stages[r]->slave(),
                                       backward_atom_v, of.tickets[2 * k + r],
                                       xs[r][k]));
    for (auto& x : open)
      std::move(x).receive(
          [&](const shared_tensor& dx) { result.push_back(dx); },
          [](const caf::error& reason) { FAIL(describe(reason)); });
    return result;
  };
  auto want = backward(first, one_by_one(first, xs));
  auto got = backward(second, together(second, xs));
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
    slaves to{system, {.name = "stream", .online = online}, 1};
    CHECK(error_of(to.ask(0, std::vector<shared_tensor>{}))
          == errc::invalid_argument);
    CHECK(error_of(to.ask(0, {xs[1], other.share()})) == errc::shape_mismatch);
    slaves fresh{system, {.name = "stream", .online = online}, 1};
    CHECK(to.state() == fresh.state());
  }
}

TEST_CASE_FIXTURE(layer_fixture, "copies asked for different numbers of "
                                 "batches get one error that says so") {
  auto xs = make_parts(2, 3);
  slaves to{system, {.name = "stream", .online = true}, 2};
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
