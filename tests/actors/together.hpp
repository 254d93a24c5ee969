#pragma once

// Slave actors that are asked for several batches in one message.

#include "syncnorm/batch_norm_stage.hpp"
#include "syncnorm/compat.hpp"
#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// Copies of a layer of three channels as slave actors.
struct slaves {
  caf::scoped_actor self;
  std::vector<std::unique_ptr<batch_norm_stage>> stages;

  /// @param replicated the copies.
  slaves(caf::actor_system& system,
         std::vector<std::unique_ptr<batch_norm_stage>> replicated)
      : self{system},
        stages{std::move(replicated)} {}

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
  std::vector<std::uint64_t> pass_ids;
};

template <class Pending>
caf::error error_of(Pending pending) {
  caf::error result;
  std::move(pending).receive(
      [](const shared_tensors&, std::uint64_t) {},
      [&](const caf::error& reason) { result = reason; });
  return result;
}

/// The parts of some batches for `count` copies: unequal, some of them empty.
inline std::vector<std::vector<shared_tensor>>
make_parts(std::size_t count, std::size_t batches,
           dtype type = dtype::float64) {
  std::mt19937 random{3};
  std::vector<std::vector<shared_tensor>> result(count);
  for (std::size_t k = 0; k < batches; ++k)
    for (std::size_t r = 0; r < count; ++r) {
      std::vector<std::int64_t> sizes{
          static_cast<std::int64_t>((2 * k + r) % 4), 3};
      auto x = std::make_shared<tensor>(make_layout(type, sizes));
      fill(*x, random, 100, 3);
      result[r].emplace_back(x->view(), x);
    }
  return result;
}

inline answers one_by_one(slaves& to,
                          const std::vector<std::vector<shared_tensor>>& xs) {
  answers result;
  for (std::size_t k = 0; k < xs[0].size(); ++k) {
    using pending = decltype(to.ask(0, xs[0][k]));
    std::vector<pending> open;
    for (std::size_t r = 0; r < xs.size(); ++r)
      open.push_back(to.ask(r, xs[r][k]));
    for (auto& x : open)
      std::move(x).receive(
          [&](const shared_tensor& y, std::uint64_t pass_id) {
            result.ys.push_back(y);
            result.pass_ids.push_back(pass_id);
          },
          [](const caf::error& reason) { FAIL(describe(reason)); });
  }
  return result;
}

/// The answers for groups of 1, 2, 3, ... batches, all asked for at once.
inline answers together(slaves& to,
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
        [&](const shared_tensors& ys, std::uint64_t pass_id) {
          REQUIRE(ys.each.size() == x.size);
          for (std::size_t i = 0; i < x.size; ++i) {
            auto at = (x.first + i) * copies + x.r;
            result.ys[at] = ys.each[i];
            result.pass_ids[at] = pass_id == 0 ? 0 : pass_id + i;
          }
        },
        [](const caf::error& reason) { FAIL(describe(reason)); });
  return result;
}

/// dx of all answers in `of`, with x as dy; none where there is no pass id.
inline std::vector<shared_tensor>
backward(slaves& to, const std::vector<std::vector<shared_tensor>>& xs,
         const answers& of) {
  using pending =
      decltype(compat::request(to.self, to.stages[0]->slave(), backward_atom_v,
                               std::uint64_t{}, shared_tensor{}));
  std::vector<pending> open;
  for (std::size_t i = 0; i < of.pass_ids.size(); ++i)
    if (of.pass_ids[i] != 0)
      open.push_back(compat::request(to.self, to.stages[i % xs.size()]->slave(),
                                     backward_atom_v, of.pass_ids[i],
                                     xs[i % xs.size()][i / xs.size()]));
  std::vector<shared_tensor> result;
  for (auto& x : open)
    std::move(x).receive(
        [&](const shared_tensor& dx) { result.push_back(dx); },
        [](const caf::error& reason) { FAIL(describe(reason)); });
  return result;
}

inline bool same_bits(const shared_tensor& x, const shared_tensor& y) {
  return x.view().shape() == y.view().shape()
         && (x.bytes() == 0
             || std::memcmp(x.view().data(), y.view().data(), x.bytes()) == 0);
}

} // namespace syncnorm::test
