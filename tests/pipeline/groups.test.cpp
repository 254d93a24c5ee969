// How the scatter stage groups batches, with stand-ins for all actors around
// it.

#include "normalizer.hpp"

#include "tests/pipeline/support.hpp"

#include <syncnorm/caf_error.hpp>
#include <syncnorm/future_result.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace pipeline;
using namespace pipeline::test;

namespace {

using syncnorm::shared_tensor;
using syncnorm::shared_tensors;

struct seen {
  /// Batches in each request, of the first slave.
  std::vector<std::size_t> sizes;
  std::vector<std::uint64_t> numbers;
  /// The first value of each part of each batch that came out.
  std::vector<float> values;
  totals end;
};

using seen_writer = syncnorm::future_writer<std::shared_ptr<seen>>;

/// Answers what it is asked as it is, but for the first request, if it is to
/// refuse that.
class echo_slave : public syncnorm::batch_norm_slave_actor::base {
public:
  echo_slave(caf::actor_config& config, std::shared_ptr<seen> log,
             caf::error refusal = {})
      : syncnorm::batch_norm_slave_actor::base{config},
        log_{std::move(log)},
        refusal_{std::move(refusal)} {}

  behavior_type make_behavior() override {
    auto refuse = [](const char* what) {
      return syncnorm::make_error(syncnorm::errc::invalid_argument, what);
    };
    return {
        [refuse](syncnorm::forward_atom, const shared_tensor&)
            -> caf::result<shared_tensor, std::uint64_t> {
          return refuse("one");
        },
        [this](syncnorm::forward_atom, const shared_tensors& xs)
            -> caf::result<shared_tensors, std::uint64_t> {
          if (auto refusal = std::exchange(refusal_, {}))
            return refusal;
          if (log_)
            log_->sizes.push_back(xs.each.size());
          return {xs, std::uint64_t{0}};
        },
        [refuse](syncnorm::backward_atom, std::uint64_t, const shared_tensor&)
            -> caf::result<shared_tensor> { return refuse("backward"); },
        [](syncnorm::forget_atom, std::uint64_t) {},
        [](syncnorm::train_atom, bool) {},
        [refuse](syncnorm::read_state_atom, const std::string&)
            -> caf::result<syncnorm::double_array> { return refuse("read"); },
        [](syncnorm::write_state_atom, const std::string&,
           const syncnorm::double_array&) {},
        [](syncnorm::get_metrics_atom) { return syncnorm::sync_metrics{}; },
        [](syncnorm::give_up_atom, const std::string&) {},
        [](syncnorm::zero_gradients_atom) {},
    };
  }

private:
  std::shared_ptr<seen> log_;
  caf::error refusal_;
};

/// Gives the slaves when it is asked to recover something.
class late_supervisor : public supervisor_actor::base {
public:
  late_supervisor(caf::actor_config& config, crew later)
      : supervisor_actor::base{config},
        later_{std::move(later)} {}

  behavior_type make_behavior() override {
    return {
        [this](crew_atom) -> caf::result<crew> {
          if (told_)
            return later_;
          promise_ = make_response_promise<crew>();
          return *promise_;
        },
        [this](recover_atom) {
          told_ = true;
          if (promise_)
            promise_->deliver(later_);
          return later_;
        },
        [](dismiss_atom) { return std::string{}; },
    };
  }

private:
  crew later_;
  bool told_ = false;
  std::optional<caf::typed_response_promise<crew>> promise_;
};

class silent_source : public source_actor::base {
public:
  silent_source(caf::actor_config& config,
                std::function<void(const std::string&)> on_stop)
      : source_actor::base{config},
        on_stop_{std::move(on_stop)} {}

  behavior_type make_behavior() override {
    return {
        [](start_atom, const caf::actor&) {},
        [](credit_atom) {},
        [this](stop_atom, const std::string& why) { on_stop_(why); },
    };
  }

private:
  std::function<void(const std::string&)> on_stop_;
};

class last_stage : public stage_actor::base {
public:
  last_stage(caf::actor_config& config, std::shared_ptr<seen> log,
             std::shared_ptr<seen_writer> done)
      : stage_actor::base{config},
        log_{std::move(log)},
        done_{std::move(done)} {}

  behavior_type make_behavior() override {
    return {
        [this](batch_atom, const batch& x) {
          log_->numbers.push_back(x.number);
          for (const auto& part : x.parts)
            log_->values.push_back(
                *static_cast<const float*>(part.view().data()));
        },
        [this](end_atom, const totals& x) {
          log_->end = x;
          done_->put(log_);
        },
    };
  }

private:
  std::shared_ptr<seen> log_;
  std::shared_ptr<seen_writer> done_;
};

/// Two records of one feature: 10 k and 10 k + 1.
batch make_batch(std::uint64_t k) {
  std::array<std::int64_t, 2> sizes{2, 1};
  syncnorm::tensor_memory memory{
      syncnorm::make_layout(syncnorm::dtype::float32, sizes)};
  auto* values = static_cast<float*>(memory.view().data());
  values[0] = 10 * static_cast<float>(k);
  values[1] = values[0] + 1;
  return {k, {memory.share()}};
}

/// `batches` have come before there are slaves, of which one may refuse its
/// first request. If the stream is stopped, as many come after that.
seen scatter(caf::actor_system& system, std::size_t together,
             std::uint64_t batches, caf::error refusal = {},
             bool is_stopped = false) {
  auto log = std::make_shared<seen>();
  auto behind = std::make_shared<seen>();
  crew later;
  later.slaves = {system.spawn<echo_slave>(log),
                  system.spawn<echo_slave>(nullptr, std::move(refusal))};
  later.together = together;
  auto done =
      std::make_shared<syncnorm::future_result<std::shared_ptr<seen>>>();
  auto stopped = std::make_shared<syncnorm::future_result<bool>>();
  auto first = system.spawn<silent_source>(
      [writer = std::make_shared<syncnorm::future_writer<bool>>(stopped)](
          const std::string&) { writer->put(true); });
  auto keeper = system.spawn<late_supervisor>(later);
  auto last =
      system.spawn<last_stage>(behind, std::make_shared<seen_writer>(done));
  auto stage = system.spawn<normalizer>(keeper, first,
                                        std::make_shared<stop_signal>(), last);
  auto feed = [&](std::uint64_t from) {
    for (std::uint64_t k = 0; k < batches; ++k)
      syncnorm::detail::anon_send(stage, batch_atom_v, make_batch(from + k));
  };
  feed(0);
  syncnorm::detail::anon_send(keeper, recover_atom_v);
  if (is_stopped) {
    REQUIRE(stopped->get());
    feed(batches);
  }
  syncnorm::detail::anon_send(stage, end_atom_v, totals{});
  auto result = done->get();
  caf::anon_send_exit(stage, caf::exit_reason::user_shutdown);
  for (const auto& slave : later.slaves)
    caf::anon_send_exit(slave, caf::exit_reason::user_shutdown);
  REQUIRE(static_cast<bool>(result));
  auto got = **result;
  got.sizes = log->sizes;
  return got;
}

} // namespace

TEST_CASE_FIXTURE(pipeline_fixture,
                  "batches that have come while there were no "
                  "slaves are asked for together, no more "
                  "than the crew takes, and come out alone "
                  "and in order") {
  for (std::size_t together : {1, 3, 16}) {
    CAPTURE(together);
    constexpr std::uint64_t batches = 8;
    auto got = scatter(system, together, batches);
    std::vector<std::size_t> sizes;
    for (std::size_t left = batches; left > 0; left -= sizes.back())
      sizes.push_back(std::min(left, together));
    CHECK(got.sizes == sizes);
    REQUIRE(got.numbers.size() == batches);
    for (std::uint64_t k = 0; k < batches; ++k) {
      CHECK(got.numbers[k] == k);
      CHECK(got.values[2 * k] == 10 * static_cast<float>(k));
      CHECK(got.values[2 * k + 1] == 10 * static_cast<float>(k) + 1);
    }
  }
}

TEST_CASE_FIXTURE(pipeline_fixture,
                  "slaves are started anew after an error that "
                  "other slaves might not have, and all that "
                  "was not answered is asked for again") {
  using syncnorm::errc;
  for (auto code : {errc::participant_down, errc::master_down, errc::stale,
                    errc::deadline_exceeded}) {
    CAPTURE(code);
    auto got = scatter(system, 3, 8, syncnorm::make_error(code, "try again"));
    CHECK(got.end.failure.empty());
    CHECK(got.end.recoveries == 1);
    CHECK(got.end.records_lost == 0);
    REQUIRE(got.numbers.size() == 8);
    for (std::uint64_t k = 0; k < 8; ++k)
      CHECK(got.numbers[k] == k);
  }
}

TEST_CASE_FIXTURE(pipeline_fixture, "an error that any slave would have stops "
                                    "the source, and what comes after it is "
                                    "lost, too") {
  auto got = scatter(
      system, 3, 8,
      syncnorm::make_error(syncnorm::errc::shape_mismatch, "of no use"), true);
  CHECK(got.end.failure.find("of no use") != std::string::npos);
  CHECK(got.end.recoveries == 0);
  CHECK(got.numbers.empty());
  CHECK(got.end.records_lost == 2 * 16);
}
