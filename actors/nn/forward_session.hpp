#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::nn::detail {

class participant;

/// How often each copy has called one layer in the current forward pass. The
/// copies that exchange messages are those in [first, last).
struct layer_calls {
  layer_calls(std::string layer_name, std::size_t copies,
              std::size_t first_copy, std::size_t last_copy)
      : layer{std::move(layer_name)},
        first{first_copy},
        last{last_copy},
        of_copy(copies) {}

  [[nodiscard]] bool has(std::size_t copy) const noexcept {
    return copy >= first && copy < last;
  }

  const std::string layer;
  const std::size_t first;
  const std::size_t last;
  std::vector<std::atomic<std::uint64_t>> of_copy;
};

using layer_calls_ptr = std::shared_ptr<layer_calls>;

/// What the copies of one data-parallel module know about each other during a
/// forward pass, each on its own thread: which still run, have returned or have
/// thrown. So a copy that waits for one that will not come learns this at once,
/// not at the deadline.
///
/// No lock: a copy counts its call before it looks at the others' states, and
/// sets its state before it looks at the others' calls. Both are sequentially
/// consistent, so of two copies that miss each other, one notices.
class forward_session {
public:
  explicit forward_session(std::size_t copies) : copies_(copies) {}

  [[nodiscard]] std::size_t copies() const noexcept {
    return copies_.size();
  }

  /// Before a forward pass, from the thread that starts the copies.
  void begin();

  /// Adds the seat of `copy` at a layer, before any forward pass.
  void add_seat(const layer_calls_ptr& calls, std::size_t copy,
                participant* seat);

  /// The seats are gone: new ones will be added.
  void forget_seats() noexcept;

  /// Before a forward call of `copy`.
  /// @throws error `wrong_round` if the copy is not in its forward pass and the
  ///         layer has other copies, which will not come.
  void require_pass(const layer_calls& calls, std::size_t copy) const;

  /// Before `copy` sends into a round.
  /// @throws error `participant_failed` or `wrong_round` if a copy has ended
  ///         its forward pass and will not come.
  void enter(layer_calls& calls, std::size_t copy);

  /// `copy` has returned from its forward pass, or has thrown `failure`. Tells
  /// the copies that wait for it.
  void leave(std::size_t copy, std::optional<std::string> failure) noexcept;

  /// Set when all copies have left the pass that began last.
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> is_over() const {
    return is_over_;
  }

  /// Whether any copy has thrown.
  [[nodiscard]] bool failed() const noexcept {
    return first_failure_.load() >= 0;
  }

  /// The copy that threw first, or -1.
  [[nodiscard]] std::int64_t first_failure() const noexcept {
    return first_failure_.load();
  }

private:
  enum class state : std::uint8_t { running, returned, thrown };

  struct seat_entry {
    layer_calls_ptr calls;
    participant* seat = nullptr;
  };

  struct copy_entry {
    std::atomic<state> now = state::running;
    std::string failure;
    std::vector<seat_entry> seats;
  };

  [[nodiscard]] std::string why_absent(const layer_calls& calls,
                                       std::size_t copy) const;

  std::vector<copy_entry> copies_;
  std::atomic<std::size_t> left_ = 0;
  /// A new one for each pass, whose graph keeps it.
  std::shared_ptr<std::atomic<bool>> is_over_;
  std::atomic<std::int64_t> first_failure_ = -1;
};

} // namespace syncnorm::nn::detail
