#pragma once

#include "syncnorm/error.hpp"
#include "syncnorm/sync_callback.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

// The order in which replicas are merged: a binary tree over the identifiers 0,
// 1, 2, ..., whose nodes at height h stand for the identifiers
// [k * 2^h, (k + 1) * 2^h). A missing replica is skipped. A merge along this
// tree has the same bits in one actor as over any tree of relays, because a
// relay merges only whole nodes. For identifiers from 0 on without gaps, this
// is the tree of `merge_moments`.

namespace syncnorm {

namespace detail {

/// The first identifier of the right of the two subtrees in which `first` and
/// `last` lie, first < last.
[[nodiscard]] constexpr std::int64_t split_identifier(std::int64_t first,
                                                      std::int64_t last) {
  auto bit = std::bit_floor(std::uint64_t(first ^ last));
  return last & ~std::int64_t(bit - 1);
}

/// How many of `parts`, two or more in the order of their identifiers, belong
/// to the left of the two subtrees that hold them.
template <class T>
std::size_t split_of(std::span<const identified<T>> parts) {
  auto boundary =
      split_identifier(parts.front().identifier, parts.back().identifier);
  auto i =
      std::ranges::lower_bound(parts, boundary, {}, &identified<T>::identifier);
  return static_cast<std::size_t>(i - parts.begin());
}

/// The fewest nodes of the tree that together are the identifiers `first` to
/// `first + count - 1`: the first identifier of each node. There are at most
/// 2 * log2(count) + 2.
[[nodiscard]] std::vector<std::int64_t> tree_blocks(std::int64_t first,
                                                    std::int64_t count);

} // namespace detail

/// Merges `parts`, one or more in the order of their identifiers, along the
/// tree. An identifier is a replica's, or the first one of a node that was
/// merged before.
/// @param node makes one T from two, of which the first has the lower
///             identifiers; it may move from both.
template <class T, class Node>
T fold_tree(std::span<identified<T>> parts, Node&& node) {
  if (parts.size() == 1)
    return std::move(parts[0].message);
  auto left = detail::split_of(std::span<const identified<T>>{parts});
  auto a = fold_tree(parts.first(left), node);
  auto b = fold_tree(parts.subspan(left), node);
  return node(std::move(a), std::move(b));
}

namespace detail {

/// How many elements of a sum stay in the nearest cache.
inline constexpr std::size_t sum_block = 256;

/// Sets `out` to the sum of the elements of `parts` from `at` on.
template <class T, class Sum>
void add_block(std::span<const identified<std::span<const T>>> parts,
               std::size_t at, std::span<Sum> out) {
  auto leaf = [&](std::size_t i) {
    return parts[i].message.subspan(at, out.size());
  };
  if (parts.size() == 1) {
    std::ranges::copy(leaf(0), out.begin());
    return;
  }
  if (parts.size() == 2) {
    auto a = leaf(0);
    auto b = leaf(1);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = Sum{a[i]} + Sum{b[i]};
    return;
  }
  auto left = split_of(parts);
  add_block(parts.first(left), at, out);
  Sum other[sum_block];
  std::span right{other, out.size()};
  add_block(parts.subspan(left), at, right);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] += right[i];
}

} // namespace detail

/// Adds arrays along the tree, element by element, and rounds each node to
/// `Sum`, so that relays, which must send on a `Sum`, get the same bits.
/// @param parts in the order of their identifiers, all of the size of `out`; an
///              empty one is skipped. Their type is that of the sum or a
///              narrower one: float32 for a sum of float64.
/// @throws error `shape_mismatch`, which names the replica.
template <class T, class Sum>
void add_tree(std::vector<identified<std::span<const T>>> parts,
              std::span<Sum> out) {
  static_assert(sizeof(T) <= sizeof(Sum), "the sum would round its parts");
  std::erase_if(parts, [](const auto& x) { return x.message.empty(); });
  for (const auto& x : parts)
    if (x.message.size() != out.size())
      throw error{errc::shape_mismatch,
                  "replica " + std::to_string(x.identifier) + " sent "
                      + std::to_string(x.message.size())
                      + " elements, expected " + std::to_string(out.size())};
  if (parts.empty()) {
    std::ranges::fill(out, Sum{});
    return;
  }
  for (std::size_t at = 0; at < out.size(); at += detail::sum_block)
    detail::add_block<T>(
        parts, at,
        out.subspan(at, std::min(detail::sum_block, out.size() - at)));
}

} // namespace syncnorm
