#include "tests/actors/system.hpp"
#include "tests/fuzz/messages.hpp"

#include <doctest/doctest.h>

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
std::vector<bytes> good_messages() {
  batch_norm_message message;
  message.channels = 2;
  message.count = 3;
  message.values = {1, 2, 3, 4};
  message.update.running = {0, 0, 1, 1};
  tensor_memory memory{make_layout(dtype::float32, std::array{2L, 3L, 4L},
                                   memory_format::channels_first)};
  std::vector<bytes> bodies{
      detail::serialize(float_array{1, 2, 3}),
      detail::serialize(double_array{1, 2, 3}),
      detail::serialize(memory.share()),
      detail::serialize(round_tag{1, 2, 3, 4}),
      detail::serialize(slave_ticket{{1, 2, 3, 4}, caf::timespan{5}, true}),
      detail::serialize(message),
      detail::serialize(batch_norm_reply{3, {1, 2, 3, 4}, {}, 1}),
      detail::serialize(message.update),
      detail::serialize(errc::stale),
  };
  for (std::size_t i = 0; i < bodies.size(); ++i)
    bodies[i].insert(bodies[i].begin(), std::byte(i));
  return bodies;
}

} // namespace

TEST_CASE_FIXTURE(system_fixture, "what a message was read as is written as "
                                  "the same bytes, whole or cut or changed") {
  std::mt19937 random{7};
  for (const auto& good : good_messages()) {
    CHECK(fuzz::read(good));
    for (std::size_t n = 0; n < good.size(); ++n)
      CHECK(fuzz::read(std::span{good}.first(n)));
    for (int trial = 0; trial < 500; ++trial) {
      auto bad = good;
      for (auto n = random() % 4 + 1; n-- > 0;)
        bad[1 + random() % (bad.size() - 1)] = std::byte(random());
      CHECK(fuzz::read(bad));
    }
  }
}

TEST_CASE_FIXTURE(system_fixture, "every input of the corpus is read or "
                                  "refused") {
  auto n = 0;
  for (const auto& file :
       std::filesystem::directory_iterator{SYNCNORM_FUZZ_CORPUS}) {
    std::ifstream in{file.path(), std::ios::binary};
    std::string text{std::istreambuf_iterator<char>{in}, {}};
    CHECK_MESSAGE(fuzz::read(std::as_bytes(std::span{text})),
                  file.path().string());
    ++n;
  }
  CHECK(n > 5);
}
