#include "tests/actors/system.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using namespace syncnorm;

namespace {

/// CAF's errors carry their text in a message, whose types must be known.
struct types_fixture {
  int types = test::init_types();
};

} // namespace

TEST_CASE_FIXTURE(
    types_fixture,
    "a future result hands over a value once, then carries the next") {
  future_result<std::string> pipe;
  CHECK_FALSE(pipe.is_ready());
  for (const auto* text : {"one", "two", "three"}) {
    CHECK(pipe.put(std::string{text}) == caf::none);
    CHECK(pipe.is_ready());
    CHECK(*pipe.get() == text);
    CHECK_FALSE(pipe.is_ready());
  }
  CHECK(pipe.fetched() == 3);
}

TEST_CASE_FIXTURE(
    types_fixture,
    "a second put before a get is an error and keeps the first result") {
  future_result<int> pipe;
  CHECK(pipe.put(1) == caf::none);
  CHECK(code_of(pipe.put(2)) == errc::duplicate_message);
  CHECK(*pipe.get() == 1);
}

TEST_CASE_FIXTURE(types_fixture, "a future result hands over an error") {
  future_result<int> pipe;
  CHECK(pipe.put(make_error(errc::stale, "old")) == caf::none);
  auto result = pipe.get();
  REQUIRE_FALSE(result);
  CHECK(describe(result.error()) == "stale: old");
}

// With a weaker order of the store in `put` this hung in one run of twenty, on
// two cores: both threads asleep, each with its result.
TEST_CASE_FIXTURE(
    types_fixture,
    "get waits for a put from another thread, a hundred thousand times") {
  future_result<int> there;
  future_result<int> back;
  constexpr int rounds = 100'000;
  std::thread other{[&] {
    for (int i = 0; i < rounds; ++i)
      std::ignore = back.put(*there.get() + 1);
  }};
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    std::ignore = there.put(i);
    wrong += *back.get() != i + 1;
  }
  other.join();
  CHECK(wrong == 0);
}

TEST_CASE_FIXTURE(types_fixture,
                  "of many threads that put one result, one succeeds") {
  for (int repeat = 0; repeat < 200; ++repeat) {
    future_result<int> pipe;
    std::atomic<int> accepted = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        if (pipe.put(i) == caf::none)
          ++accepted;
      });
    for (auto& t : threads)
      t.join();
    CHECK(accepted == 1);
    CHECK(pipe.get());
  }
}

TEST_CASE_FIXTURE(types_fixture,
                  "a writer that goes away without a result puts an error") {
  auto pipe = std::make_shared<future_result<int>>();
  std::make_unique<future_writer<int>>(pipe).reset();
  auto result = pipe->get();
  REQUIRE_FALSE(result);
  CHECK(code_of(result.error()) == errc::master_down);
}

TEST_CASE_FIXTURE(types_fixture,
                  "a writer puts once, also when it goes away later") {
  auto pipe = std::make_shared<future_result<int>>();
  {
    future_writer<int> writer{pipe};
    writer.put(1);
    CHECK(*pipe->get() == 1);
    writer.put(2);
  }
  CHECK_FALSE(pipe->is_ready());
}
