#include "tests/actors/system.hpp"
#include "tests/actors/wire.hpp"
#include "tests/fuzz/messages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using bytes = std::vector<std::byte>;

/// What each kind of message looks like, after the byte that names the kind.
std::vector<bytes> good_messages(caf::actor_system& system) {
  batch_norm_message message;
  message.channels = 2;
  message.count = 3;
  message.values = {1, 2, 3, 4, 5, 6, 7, 8};
  message.update.running = {0, 0, 1, 1};
  message.pass = 7;
  message.later_counts.push_back(5);
  sync_metrics metrics;
  metrics.layer = "bn";
  metrics.rounds = 5;
  metrics.failures.push_back({errc::stale, 2});
  tensor_memory memory{make_layout(dtype::float32, std::array{2L, 3L, 4L},
                                   memory_format::channels_first)};
  std::ranges::fill(
      std::span{static_cast<float*>(memory.view().data()), 2 * 3 * 4}, 0.5F);
  std::vector<bytes> bodies{
      test::serialize(float_array{1, 2, 3}),
      test::serialize(double_array{1, 2, 3}),
      test::serialize(memory.share()),
      test::serialize(round_tag{1, 2, 3, 4}),
      test::serialize(slave_ticket{{1, 2, 3, 4}, caf::timespan{5}, true}),
      test::serialize(message),
      test::serialize(batch_norm_reply{
          3, message.values, {}, 1, false, message.later_counts}),
      test::serialize(message.update),
      test::serialize(errc::stale),
      test::serialize(detail::wrap_parts<double_array>(
                          {{3, {1, 2}}, {4, {3, 4}}}, caf::timespan{5}),
                      &system),
      test::serialize(make_error(errc::stale, "a text"), &system),
      test::serialize(shared_tensors{{memory.share(), memory.share()}}),
      test::serialize(metrics),
  };
  for (std::size_t i = 0; i < bodies.size(); ++i)
    bodies[i].insert(bodies[i].begin(), std::byte(i));
  return bodies;
}

} // namespace

TEST_CASE_FIXTURE(system_fixture, "what a message was read as is written as "
                                  "the same bytes, whole or cut or changed") {
  std::mt19937 random{7};
  for (const auto& good : good_messages(system)) {
    CHECK(fuzz::read(good, system));
    for (std::size_t n = 0; n < good.size(); ++n)
      CHECK(fuzz::read(std::span{good}.first(n), system));
    for (int trial = 0; trial < 500; ++trial) {
      auto bad = good;
      for (auto n = random() % 4 + 1; n-- > 0;)
        bad[1 + random() % (bad.size() - 1)] = std::byte(random());
      CHECK(fuzz::read(bad, system));
    }
  }
}

TEST_CASE_FIXTURE(system_fixture, "a relay's parts are read whole, and "
                                  "refused cut; its reason has a text") {
  auto messages = good_messages(system);
  auto whole = std::span<const std::byte>{messages[9]}.subspan(1);
  auto read = [&](std::size_t size) -> std::vector<identified<double_array>> {
    relay_parts x;
    if (!test::deserialize(whole.first(size), x, &system))
      return {};
    auto relay = detail::participant::relay(3, 10);
    auto parts = detail::unwrap_parts<double_array>(relay, x);
    if (!parts)
      return {};
    return std::move(*parts);
  };
  auto parts = read(whole.size());
  REQUIRE(parts.size() == 2);
  CHECK(parts[1].message == double_array{3, 4});
  // On 0.17, a message of messages that ends too early is an empty one.
  for (std::size_t n = 0; n < whole.size(); ++n)
    CHECK(read(n).empty());
  caf::error reason;
  REQUIRE(test::deserialize(std::span<const std::byte>{messages[10]}.subspan(1),
                            reason, &system));
  CHECK(describe(reason) == "stale: a text");
}

TEST_CASE("of an error that another node may have sent, only text and numbers "
          "are written") {
  CHECK(describe(caf::make_error(caf::sec::cannot_connect_to_node,
                                 std::string{"there"}, std::uint16_t{17}))
            .find("there")
        != std::string::npos);
  auto told = describe(caf::make_error(caf::sec::cannot_connect_to_node,
                                       std::string{"there"}, slave_ticket{}));
  CHECK(told.find("cannot_connect_to_node") != std::string::npos);
  CHECK(told.find("there") == std::string::npos);
}

#if SYNCNORM_CAF_LEGACY
TEST_CASE("an error with a duration that has no unit is told without it") {
  caf::duration broken{static_cast<caf::time_unit>(0x4d), 3};
  CHECK(describe(caf::make_error(caf::sec::request_timeout, broken))
        == describe(caf::make_error(caf::sec::request_timeout)));
}

// As the fuzzer's CAF writes them.
TEST_CASE_FIXTURE(system_fixture,
                  "the corpus has a good message of each kind") {
  auto messages = good_messages(system);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto name = SYNCNORM_FUZZ_CORPUS "/kind_" + std::to_string(i);
    if (std::getenv("SYNCNORM_WRITE_CORPUS") != nullptr)
      std::ofstream{name, std::ios::binary}.write(
          reinterpret_cast<const char*>(messages[i].data()),
          static_cast<std::streamsize>(messages[i].size()));
    std::ifstream in{name, std::ios::binary};
    std::string text{std::istreambuf_iterator<char>{in}, {}};
    auto saved = std::as_bytes(std::span{text});
    CHECK_MESSAGE(std::ranges::equal(saved, messages[i]), name,
                  " is another message; SYNCNORM_WRITE_CORPUS=1 writes "
                  "it anew");
  }
}
#endif

TEST_CASE_FIXTURE(system_fixture, "every input of the corpus is read or "
                                  "refused") {
  auto n = 0;
  for (const auto& file :
       std::filesystem::directory_iterator{SYNCNORM_FUZZ_CORPUS}) {
    std::ifstream in{file.path(), std::ios::binary};
    std::string text{std::istreambuf_iterator<char>{in}, {}};
    CHECK_MESSAGE(fuzz::read(std::as_bytes(std::span{text}), system),
                  file.path().string());
    ++n;
  }
  CHECK(n > 10);
}
