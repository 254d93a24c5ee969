#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/shared_tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The contestants of bench/pipeline.

namespace syncnorm::bench {

inline constexpr std::int64_t features = 64;
inline constexpr std::size_t different_batches = 16;

/// How batches are sent to actors.
struct manner {
  std::string name;
  /// Batches in a message.
  std::int64_t together;
  /// Messages to each actor in flight at a time.
  std::size_t window;
  /// Whether idle workers poll.
  bool polls;

  /// The most results of an actor in flight at a time.
  [[nodiscard]] std::size_t results() const {
    return static_cast<std::size_t>(together) * window;
  }

  static manner one_by_one() {
    return {"one by one", 1, 8, false};
  }

  /// As many batches as make 256 KiB per slave, times the number of slaves,
  /// since a round costs more with more of them; 16 at most. Two such messages
  /// in flight: a core's own cache would not hold the results of more.
  static manner grouped(std::int64_t bytes_a_slave, std::size_t slaves) {
    auto bytes = 262144 * static_cast<std::int64_t>(slaves);
    return {"together", std::clamp<std::int64_t>(bytes / bytes_a_slave, 1, 16),
            2, true};
  }
};

using batches = std::vector<shared_tensor>;

/// Makes `different_batches` batches of float32.
[[nodiscard]] batches make_batches(std::int64_t records, std::int64_t width);

/// Something that processes `count` batches, starting with the first.
class contestant {
public:
  contestant() = default;
  contestant(const contestant&) = delete;
  contestant& operator=(const contestant&) = delete;
  virtual ~contestant() = default;

  virtual void run(std::int64_t count) = 0;

  /// The result for the last batch of the last run, part after part.
  [[nodiscard]] virtual std::vector<float> last() const = 0;
};

/// The samples of a batch that go to number `r` of `count` actors.
[[nodiscard]] shared_tensor part_of(const shared_tensor& batch, std::size_t r,
                                    std::size_t count);

/// Online standardization in a plain loop, without actors and messages.
[[nodiscard]] std::unique_ptr<contestant> make_loop(const batches& xs);

/// That loop in `threads` threads, each with batches of its own: what the
/// machine allows that many cores. Each result overwrites the one `kept` before
/// it, as if the results in between were still in use.
[[nodiscard]] std::unique_ptr<contestant> make_loops(std::size_t threads,
                                                     std::int64_t records,
                                                     std::int64_t width,
                                                     std::size_t kept);

// Each of these scatters `xs` among `count` actors, and takes the results.

/// Slave actors: online standardization.
[[nodiscard]] std::unique_ptr<contestant> make_slaves(caf::actor_system& system,
                                                      const batches& xs,
                                                      std::size_t count,
                                                      const manner& how);

/// Plain actors that call the same kernels, each only for its part: no round,
/// no master. This is what slave actors could reach if rounds cost nothing.
[[nodiscard]] std::unique_ptr<contestant>
make_kernel_actors(caf::actor_system& system, const batches& xs,
                   std::size_t count, const manner& how);

/// Plain actors that answer with what they get: the least that CAF needs.
[[nodiscard]] std::unique_ptr<contestant>
make_plain_actors(caf::actor_system& system, const batches& xs,
                  std::size_t count, const manner& how);

} // namespace syncnorm::bench
