#pragma once

#include "actors/nn/forward_session.hpp"
#include "actors/nn/joint_rounds.hpp"
#include "syncnorm/batch_norm_master.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace syncnorm::nn::detail {

/// The CUDA device of each copy of a group in the last forward round, or -1. A
/// copy writes before it sends, and reads when all have sent.
class device_table {
public:
  explicit device_table(std::size_t copies) : of_copy_(copies) {
    for (auto& x : of_copy_)
      x.store(-1);
  }

  void set(std::size_t copy, std::int32_t index) noexcept {
    of_copy_[copy].store(index);
  }

  [[nodiscard]] std::optional<std::string> shared() const {
    for (std::size_t i = 0; i < of_copy_.size(); ++i)
      for (std::size_t k = i + 1; k < of_copy_.size(); ++k)
        if (auto index = of_copy_[i].load();
            index >= 0 && index == of_copy_[k].load())
          return fmt::format("copies {} and {} on cuda:{}", i, k, index);
    return std::nullopt;
  }

private:
  std::vector<std::atomic<std::int32_t>> of_copy_;
};

/// Which copies of a group have recorded a graph in a forward round. A copy
/// writes before it sends, and reads when all have sent. Two rounds are enough:
/// a copy that writes into the next round but one has seen the reply of the
/// next, into which all have sent after they read this one.
class graph_table {
public:
  explicit graph_table(std::size_t copies)
      : of_round_{std::vector<std::atomic<bool>>(copies),
                  std::vector<std::atomic<bool>>(copies)} {}

  void set(std::uint64_t round, std::size_t copy, bool has_graph) noexcept {
    of_round_[round % 2][copy].store(has_graph);
  }

  /// The first copy without a graph, or -1.
  [[nodiscard]] std::int64_t first_without(std::uint64_t round) const noexcept {
    const auto& copies = of_round_[round % 2];
    for (std::size_t i = 0; i < copies.size(); ++i)
      if (!copies[i].load())
        return static_cast<std::int64_t>(i);
    return -1;
  }

private:
  std::array<std::vector<std::atomic<bool>>, 2> of_round_;
};

/// The copies [first, last) of a layer that exchange messages.
struct layer_group {
  std::int64_t first = 0;
  std::int64_t last = 0;
  batch_norm_master_actor master;
  /// Where its copies register, if they are all in this process.
  std::shared_ptr<batch_norm_relays> relays;
  std::shared_ptr<device_table> devices;
  std::shared_ptr<graph_table> graphs;
  layer_calls_ptr calls;
  std::shared_ptr<joint_rounds> joint;
};

} // namespace syncnorm::nn::detail
