#pragma once

#include "syncnorm/batch_norm_stage.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

// Slave actors, and a client with several open requests to them at a time.

namespace syncnorm::test {

using stages = std::vector<std::unique_ptr<batch_norm_stage>>;

inline stages make_stages(caf::actor_system& system,
                          const batch_norm_options& options,
                          std::size_t count) {
  stages result;
  result.push_back(std::make_unique<batch_norm_stage>(system, options));
  while (result.size() < count)
    result.push_back(std::make_unique<batch_norm_stage>(result[0]->clone()));
  return result;
}

struct answer {
  caf::error reason;
  tensor value;
  std::uint64_t pass_id = 0;
};

/// Requests that stay open until they are awaited, as in a pipeline.
class client {
public:
  explicit client(caf::actor_system& system) : self_{system} {}

  auto forward(const batch_norm_stage& to, const tensor& x) {
    return detail::request(self_, to.slave(), forward_atom_v, share(x));
  }

  auto backward(const batch_norm_stage& to, std::uint64_t pass_id,
                const tensor& dy) {
    return detail::request(self_, to.slave(), backward_atom_v, pass_id,
                           share(dy));
  }

  template <class... Ts>
  auto ask(const batch_norm_stage& to, Ts... xs) {
    return detail::request(self_, to.slave(), std::move(xs)...);
  }

  template <class Pending>
  static answer await_forward(Pending pending) {
    answer result;
    std::move(pending).receive(
        [&](const shared_tensor& y, std::uint64_t pass_id) {
          result.value = fetch(y);
          result.pass_id = pass_id;
        },
        [&](caf::error& reason) { result.reason = std::move(reason); });
    return result;
  }

  template <class Pending>
  static answer await_backward(Pending pending) {
    answer result;
    std::move(pending).receive(
        [&](const shared_tensor& dx) { result.value = fetch(dx); },
        [&](caf::error& reason) { result.reason = std::move(reason); });
    return result;
  }

  std::vector<double> read_state(const batch_norm_stage& from,
                                 std::string name) {
    std::vector<double> result;
    ask(from, read_state_atom_v, std::move(name))
        .receive(
            [&](const double_array& x) { result.assign(x.begin(), x.end()); },
            [&](const caf::error& reason) { FAIL(describe(reason)); });
    return result;
  }

private:
  caf::scoped_actor self_;
};

inline tensor make_tensor(const batch_norm_options& options,
                          std::int64_t samples, std::mt19937& random) {
  std::array<std::int64_t, 3> sizes{samples, options.channels, 4};
  tensor x{make_layout(options.type, sizes)};
  fill(x, random, 1, 2);
  return x;
}

inline constexpr double tolerance = 1e-10; // the tolerance of float64

inline void check_near(const tensor& got, const tensor& want) {
  REQUIRE(got.layout.shape == want.layout.shape);
  reference::for_each({want}, [&](auto, auto, auto i) {
    if (!(std::abs(got.get(i) - want.get(i)) <= tolerance))
      FAIL_CHECK("got " << got.get(i) << ", want " << want.get(i));
  });
}

/// One device's results for the micro-batch `xs`, `dys`.
struct expectation {
  std::vector<tensor> y, dx;

  expectation(const batch_norm_options& options, const std::vector<tensor>& xs,
              const std::vector<tensor>& dys)
      : y{xs},
        dx{xs} {
    auto channels = static_cast<std::size_t>(options.channels);
    reference truth{options.eps, options.mode, std::vector<double>(channels, 1),
                    std::vector<double>(channels, 0)};
    truth.forward(xs);
    truth.backward(xs, dys);
    reference::for_each(xs, [&](auto c, auto r, auto i) {
      y[r].set(i, truth.y(c, xs[r].get(i)));
      dx[r].set(i, truth.dx(c, xs[r].get(i), dys[r].get(i)));
    });
  }
};

inline const batch_norm_options float64_options{
    .name = "bn", .channels = 3, .type = dtype::float64};

inline void train(client& c, const stages& net, bool on) {
  for (const auto& stage : net)
    c.ask(*stage, train_atom_v, on)
        .receive([] {},
                 [](const caf::error& reason) { FAIL(describe(reason)); });
}

/// Checks that a round works, with `x` for each copy.
/// @returns their pass ids.
inline std::vector<std::uint64_t> check_round(client& c, const stages& net,
                                              const tensor& x) {
  std::vector<decltype(c.forward(*net[0], x))> pending;
  for (const auto& stage : net)
    pending.push_back(c.forward(*stage, x));
  std::vector<std::uint64_t> pass_ids;
  for (auto& one : pending) {
    auto got = c.await_forward(std::move(one));
    CHECK(describe(got.reason) == describe({}));
    pass_ids.push_back(got.pass_id);
  }
  return pass_ids;
}

/// An actor system, a client in it, and random numbers.
struct stage_fixture : layer_fixture {
  /// Stages that know that they are copies of one layer.
  stages replicated(std::size_t count,
                    const batch_norm_options& options = float64_options) {
    auto result = make_stages(system, options, count);
    execute_replication_callbacks(result);
    return result;
  }

  client c{system};
  std::mt19937 random{1};
};

} // namespace syncnorm::test
