#include "trainer/input/batch.hpp"
#include "trainer/plan/epoch_plan.hpp"
#include "trainer/plan/run_state.hpp"
#include "trainer/run/gradient_sum.hpp"
#include "trainer/run/replica_group.hpp"

#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include "tests/actors/wire.hpp"

#include "syncnorm/caf_error.hpp"
#include "syncnorm/sync_master.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

using parts = std::vector<identified<gradient_part>>;

parts parts_of(std::vector<std::vector<float>> gradients) {
  parts result;
  for (auto& x : gradients) {
    auto id = static_cast<std::int64_t>(result.size());
    result.push_back({id, {0.5, flat_array{std::move(x)}}});
  }
  return result;
}

gradient_sum add_gradients(parts& messages) {
  return finish_gradients(merge_gradients(messages));
}

/// Number and count of a replica on its machine, as 100 * number + count.
using place_ptr = std::shared_ptr<std::atomic<std::uint64_t>>;

/// The hash of a replica that does not answer what takes computing.
constexpr std::uint64_t silent = 0;

/// A replica that answers as it is told.
class fake_replica : public replica_actor::base {
public:
  fake_replica(caf::actor_config& config, std::uint64_t hash,
               std::function<caf::error()> problem, place_ptr place)
      : replica_actor::base{config},
        hash_{hash},
        problem_{std::move(problem)},
        place_{std::move(place)} {}

  void on_exit() override {
    gradients_.reset();
  }

  behavior_type make_behavior() override {
    return {
        [this](lead_atom, std::uint64_t) -> caf::result<lineup> {
          gradients_ = std::make_unique<gradient_owner>(
              system(), sync_options{.layer = "gradients"},
              sync_reduction<gradient_part, gradient_sum>{merge_gradients,
                                                          finish_gradients});
          lineup result;
          result.gradients.push_back(gradients_->handle());
          return result;
        },
        [](follow_atom, const lineup&, std::uint64_t,
           std::uint64_t) -> caf::result<void> { return caf::unit; },
        [](relay_atom, const lineup& x, std::uint64_t,
           std::uint64_t) -> caf::result<lineup> { return x; },
        [this](settle_atom, std::uint64_t index,
               std::uint64_t count) -> caf::result<void> {
          place_->store(100 * index + count);
          return caf::unit;
        },
        [this](step_atom, const step_plan&) -> caf::result<step_report> {
          if (hash_ == silent)
            return caf::delegated<step_report>{};
          return step_report{};
        },
        [this](evaluate_atom, std::uint64_t begin,
               std::uint64_t end) -> caf::result<evaluation> {
          if (hash_ == silent)
            return caf::delegated<evaluation>{};
          return evaluation{end - begin, begin, 0.5};
        },
        [this](hash_atom) -> caf::result<std::uint64_t> {
          if (hash_ != silent)
            return hash_;
          return caf::delegated<std::uint64_t>{};
        },
        [this](state_atom) -> caf::result<model_state> {
          if (hash_ == silent)
            return caf::delegated<model_state>{};
          return model_state{};
        },
        [this](assume_atom, const model_state&) -> caf::result<void> {
          return problem_();
        },
        [](ping_atom) -> caf::result<std::string> { return std::string{}; },
        [](open_atom) -> caf::result<std::string> { return std::string{}; },
        [](reach_atom, const std::string&) -> caf::result<void> {
          return caf::unit;
        },
    };
  }

private:
  using gradient_owner = sync_master<gradient_part, gradient_sum>;

  std::uint64_t hash_;
  std::function<caf::error()> problem_;
  place_ptr place_;
  std::unique_ptr<gradient_owner> gradients_;
};

struct fake_group {
  caf::actor_system system{configuration()};
  std::vector<replica_actor> members;
  std::vector<place_ptr> places;

  void add(
      std::uint64_t hash,
      std::function<caf::error()> problem = [] { return caf::error{}; }) {
    places.push_back(std::make_shared<std::atomic<std::uint64_t>>());
    members.push_back(
        system.spawn<fake_replica>(hash, std::move(problem), places.back()));
  }
};

run_state some_run_state() {
  dataset data;
  data.training.shape = {1, 8, 8};
  data.fingerprint = 77;
  auto state = initial_state(settings{}, data);
  state.epoch = 3;
  state.position = 128;
  state.step = 71;
  state.loss = 1.0 / 3.0;
  return state;
}

} // namespace

TEST_CASE("gradients are added over all replicas, empty ones as zero") {
  auto messages = parts_of({{1, 2}, {}, {10, 20}});
  auto sum = add_gradients(messages);
  CHECK(sum.gradient.f32 == float_array{11, 22});
  CHECK(sum.loss == 1.5);
  CHECK(sum.finite);
}

TEST_CASE("gradients longer than a block are added to their end") {
  std::vector<float> ramp(2500);
  for (std::size_t i = 0; i < ramp.size(); ++i)
    ramp[i] = static_cast<float>(i);
  auto messages = parts_of({ramp, ramp});
  auto sum = add_gradients(messages);
  for (std::size_t i = 0; i < ramp.size(); ++i)
    REQUIRE(sum.gradient.f32[i] == 2 * ramp[i]);
}

TEST_CASE("float32 gradients are added without losing small ones") {
  // 2^24 + 1 - 2^24 is 0 in float32, however it is grouped from the left.
  auto messages = parts_of({{16777216.0F}, {1.0F}, {-16777216.0F}});
  CHECK(add_gradients(messages).gradient.f32[0] == 1.0F);
}

TEST_CASE("gradients that a relay has merged give the same bits") {
  auto values = [](double x) {
    std::vector<float> result;
    for (int i = 0; i < 1000; ++i)
      result.push_back(static_cast<float>(std::sin(x + i) * std::exp(i % 40)));
    return result;
  };
  auto flat = parts_of({values(0), values(1), values(2), values(3), {}});
  for (auto& x : flat)
    x.message.loss = 1.0 / static_cast<double>(3 + x.identifier);
  auto relayed = flat;
  auto some = std::span{relayed}.subspan(2, 2);
  relayed[2].message = merge_gradients(some);
  relayed.erase(relayed.begin() + 3);
  auto expected = add_gradients(flat);
  auto found = add_gradients(relayed);
  CHECK(found.gradient.f32 == expected.gradient.f32);
  CHECK(found.gradient.f64.size() == 0);
  CHECK(found.loss == expected.loss);
}

TEST_CASE("a sum that is not finite is marked") {
  constexpr auto inf = std::numeric_limits<float>::infinity();
  for (auto x : {inf, -inf, std::nanf("")}) {
    auto messages = parts_of({{1, 2}, {3, x}});
    CHECK_FALSE(add_gradients(messages).finite);
  }
  auto messages = parts_of({{1}});
  messages[0].message.loss = NAN;
  CHECK_FALSE(add_gradients(messages).finite);
  messages = parts_of({{}});
  messages[0].message.gradient = flat_array{std::vector<double>{1, INFINITY}};
  CHECK_FALSE(add_gradients(messages).finite);
}

TEST_CASE(
    "the time that relays took to add up counts, of several the longest") {
  auto messages = parts_of({{1}, {2}, {3}});
  // So that what adding them takes here does not count.
  messages[0].message.seconds = 1e6;
  messages[1].message.seconds = 2e6;
  auto seconds = add_gradients(messages).seconds;
  CHECK(seconds >= 2e6);
  CHECK(seconds < 3e6);
}

TEST_CASE("gradients of different models are refused by replica") {
  auto messages = parts_of({{1, 2}, {1, 2, 3}});
  CHECK(message_of([&] { (void) add_gradients(messages); })
        == "merge_gradients: replica 1: expected 2 float32, got 3 float32");
}

TEST_CASE(
    "a gradient in both types is refused by replica, whatever its length") {
  auto messages = parts_of({{1, 2, 3}, {1}});
  messages[1].message.gradient.f64 = {1, 2};
  CHECK(message_of([&] { (void) add_gradients(messages); })
        == "merge_gradients: replica 1: expected float32 or float64, got both");
}

TEST_CASE("numbers that are not finite reach another process bit for bit") {
  fake_group fakes; // Knows the messages.
  auto bits_after = []<class T>(T x, auto member, double value) {
    x.*member = value;
    T y;
    REQUIRE(test::deserialize(test::serialize(x), y));
    return std::bit_cast<std::uint64_t>(y.*member);
  };
  using limits = std::numeric_limits<double>;
  for (auto value : {-std::nan("7"), -0.0, limits::denorm_min(), 0.1,
                     limits::infinity(), -limits::infinity()}) {
    auto bits = std::bit_cast<std::uint64_t>(value);
    CHECK(bits_after(gradient_part{}, &gradient_part::loss, value) == bits);
    CHECK(bits_after(gradient_part{}, &gradient_part::seconds, value) == bits);
    CHECK(bits_after(gradient_sum{}, &gradient_sum::loss, value) == bits);
    CHECK(bits_after(gradient_sum{}, &gradient_sum::seconds, value) == bits);
    CHECK(bits_after(step_report{}, &step_report::loss, value) == bits);
    CHECK(bits_after(step_report{}, &step_report::waiting, value) == bits);
    CHECK(bits_after(evaluation{}, &evaluation::loss, value) == bits);
    CHECK(bits_after(step_plan{}, &step_plan::learning_rate, value) == bits);
  }
}

TEST_CASE("an epoch's batches cover it, and none is a single sample") {
  for (std::size_t samples : {1U, 2U, 64U, 65U, 66U, 1437U})
    for (std::size_t batch : {1U, 2U, 4U, 64U, 2000U}) {
      epoch_plan plan{samples, batch};
      std::size_t at = 0;
      for (std::size_t i = 0; i < plan.steps(); ++i) {
        CHECK(plan.has_border_at(at));
        auto range = plan.batch_at(at);
        CHECK(range.begin == at);
        CHECK((range.size() > 1 || batch == 1 || samples == 1));
        CHECK(range.size() <= batch + 1);
        at = range.end;
      }
      CHECK(at == samples);
      CHECK(plan.has_border_at(samples));
    }
}

TEST_CASE("where no batch begins or ends an epoch has no border") {
  epoch_plan plan{65, 32};
  for (std::size_t position : {1U, 31U, 33U, 64U, 66U, 96U})
    CHECK_FALSE(plan.has_border_at(position));
}

TEST_CASE("images move by every distance up to the limit, the same each time") {
  std::set<std::pair<std::ptrdiff_t, std::ptrdiff_t>> seen;
  for (std::uint32_t sample = 0; sample < 500; ++sample) {
    auto shift = shift_of(1, 1, 2, sample);
    CHECK(shift == shift_of(1, 1, 2, sample));
    seen.emplace(shift.down, shift.right);
  }
  CHECK(seen.size() == 9);
  std::size_t again = 0;
  for (std::uint32_t sample = 0; sample < 500; ++sample)
    again += shift_of(1, 1, 2, sample) == shift_of(1, 1, 3, sample) ? 1 : 0;
  CHECK(again < 100);
  CHECK(shift_of(0, 1, 2, 3) == image_shift{});
}

TEST_CASE("a moved image keeps its pixels and gets zeros from outside") {
  dataset data;
  data.mean = {1};
  data.deviation = {2};
  data.training.shape = {1, 2, 2};
  data.training.pixels = {3, 5, 7, 9};
  data.training.labels = {0};
  std::array<float, 4> out{};
  normalize_image(data, data.training, 0, {}, out);
  CHECK(out == std::array{1.0F, 2.0F, 3.0F, 4.0F});
  normalize_image(data, data.training, 0, {1, 0}, out);
  CHECK(out == std::array{-0.5F, -0.5F, 1.0F, 2.0F});
  normalize_image(data, data.training, 0, {0, -1}, out);
  CHECK(out == std::array{2.0F, -0.5F, 4.0F, -0.5F});
  normalize_image(data, data.training, 0, {0, 1}, out);
  CHECK(out == std::array{-0.5F, 1.0F, -0.5F, 3.0F});
}

TEST_CASE("each channel of an image has a mean and a deviation of its own") {
  dataset data;
  data.mean = {1, 2};
  data.deviation = {2, 4};
  data.training.shape = {2, 1, 1};
  data.training.pixels = {3, 10};
  data.training.labels = {0};
  std::array<float, 2> out{};
  normalize_image(data, data.training, 0, {}, out);
  CHECK(out == std::array{1.0F, 2.0F});
}

TEST_CASE("a run's state comes back from its text with the same bits") {
  auto state = some_run_state();
  auto again = parse_state(to_text(state), "file");
  CHECK(to_text(again) == to_text(state));
  CHECK(again.loss == state.loss);
  CHECK(again.model == "cnn");
}

TEST_CASE("a state with a missing or wrong line is refused by file and line") {
  auto text = to_text(some_run_state());
  auto at = text.find("seed=");
  auto cut = text.substr(0, at) + text.substr(text.find('\n', at) + 1);
  CHECK(contains(message_of([&] { (void) parse_state(cut, "file"); }),
                 "file: expected \"seed=\" and a value"));
  text.replace(at, 6, "seed=x");
  CHECK(contains(message_of([&] { (void) parse_state(text, "file"); }),
                 "found \"seed=x\""));
  text.replace(at, 6, "seed=1x");
  CHECK(contains(message_of([&] { (void) parse_state(text, "file"); }),
                 "found \"seed=1x"));
}

TEST_CASE("a state of another run is refused by the first difference") {
  auto found = some_run_state();
  auto expected = some_run_state();
  expected.step = 0;
  require_same_run(found, expected, "file");
  expected.precision = "f64";
  CHECK(message_of([&] { require_same_run(found, expected, "file"); })
        == "file: of another run: expected precision=f64, found precision=f32");
  auto refuses = [&](const std::string& name, auto change) {
    auto other = found;
    change(other);
    CHECK(contains(message_of([&] { require_same_run(found, other, "file"); }),
                   "file: of another run: expected " + name + "="));
  };
  refuses("model", [](auto& x) { x.model = "other"; });
  refuses("norm", [](auto& x) { x.norm = "other"; });
  refuses("batch", [](auto& x) { ++x.batch; });
  refuses("seed", [](auto& x) { ++x.seed; });
  refuses("channels", [](auto& x) { ++x.channels; });
  refuses("height", [](auto& x) { ++x.height; });
  refuses("width", [](auto& x) { ++x.width; });
}

TEST_CASE("a state of other data is refused, and one of an older version by "
          "what that did not record") {
  auto found = some_run_state();
  auto expected = found;
  expected.fingerprint = std::uint64_t{5} << 32 | 77;
  auto refusal = [&] {
    return message_of([&] { require_same_run(found, expected, "file"); });
  };
  CHECK(refusal()
        == "file: of an older version, which did not record the held-out "
           "images: expected data=000000050000004d, found "
           "data=000000000000004d");
  found.fingerprint = std::uint64_t{6} << 32 | 77;
  CHECK(refusal()
        == "file: of another run: expected data=000000050000004d, found "
           "data=000000060000004d");
  found.width += 1;
  CHECK(contains(refusal(), "of another run: expected width="));
}

TEST_CASE("replicas with different weights are an error that names one") {
  fake_group fakes;
  fakes.add(1);
  fakes.add(1);
  fakes.add(2);
  replica_group group{fakes.system, fakes.members};
  CHECK(message_of([&] { group.require_same_weights(); })
        == "replica 2: the weights differ from replica 0's: expected the hash "
           "0000000000000001, found 0000000000000002");
}

TEST_CASE("the held-out samples are spread and their results added up") {
  fake_group fakes;
  fakes.add(1);
  fakes.add(1);
  replica_group group{fakes.system, fakes.members};
  auto sum = group.evaluate(11, 2);
  CHECK(sum.samples == 11);
  CHECK(sum.correct == 0 + 5);
  CHECK(sum.loss == 1.0);
}

TEST_CASE("replicas that take part together know how many share a machine") {
  fake_group fakes;
  fakes.add(1);
  fakes.add(1);
  fakes.add(1);
  replica_group group{fakes.system, fakes.members};
  // None of the fake ones registers with the masters: the first is alone.
  CHECK(group.assemble() == 1);
  for (std::uint64_t i : {0U, 1U, 2U})
    CHECK(*fakes.places[i] == 100 * i + 3);
}

TEST_CASE("of several errors the cause is reported, not what followed") {
  fake_group fakes;
  fakes.add(1, [] { return make_error(errc::master_down, "follower"); });
  fakes.add(1, [] { return make_error(errc::invalid_argument, "cause"); });
  replica_group group{fakes.system, fakes.members};
  CHECK(message_of([&] { group.assume({}); }) == "cause");
}

TEST_CASE("a replica that is gone is an error, not a wait") {
  fake_group fakes;
  fakes.add(1);
  caf::anon_send_exit(fakes.members[0], caf::exit_reason::kill);
  replica_group group{fakes.system, fakes.members};
  CHECK(message_of([&] { group.assume({}); }) != "nothing was thrown");
}

TEST_CASE("a replica that does not answer after another one has is an error "
          "that names it, not a wait") {
  using namespace std::chrono_literals;
  fake_group fakes;
  fakes.add(1);
  fakes.add(silent);
  replica_group group{fakes.system, fakes.members, 10ms};
  const std::string late = "replica 1 did not answer in time";
  CHECK(message_of([&] { (void) group.evaluate(11, 2); }) == late);
  group.begin_step({});
  CHECK(message_of([&] { (void) group.end_step(); }) == late);
}

TEST_CASE("a replica that alone is asked for what takes no long computing, and "
          "does not answer, is an error that names it") {
  using namespace std::chrono_literals;
  fake_group fakes;
  fakes.add(silent);
  replica_group group{fakes.system, fakes.members, 10ms};
  CHECK(message_of([&] { (void) group.state(); })
        == "replica 0 did not answer in time");
}

TEST_CASE("nothing is saved of a replica 0 that did not say how a step ended") {
  using namespace std::chrono_literals;
  fake_group fakes;
  fakes.add(silent);
  fakes.add(1);
  replica_group group{fakes.system, fakes.members, 10ms};
  group.begin_step({});
  CHECK(message_of([&] { (void) group.end_step(); })
        == "replica 0 did not answer in time");
  CHECK(message_of([&] { (void) group.state(); })
        == "replica 0 may be in the middle of a step");
}
