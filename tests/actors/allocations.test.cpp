#include "tests/actors/participants.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

std::atomic<std::size_t> allocated = 0;

[[maybe_unused]] void* count_and_allocate(std::size_t size) {
  allocated += size;
  if (auto* memory = std::malloc(size))
    return memory;
  throw std::bad_alloc{};
}

/// Bytes that all threads together allocate for `rounds` rounds of one slave
/// and the owner, with a payload of `n` elements that exists before.
std::size_t bytes_for_rounds(caf::actor_system& system, std::size_t n,
                             int rounds) {
  using block = float_array;
  block payload{std::vector<float>(n)};
  sync_master<block, block> master{
      system, {.layer = "bn1"}, [](std::span<identified<block>> messages) {
        std::vector<identified<block>> replies;
        for (const auto& x : messages)
          replies.push_back({x.identifier, x.message});
        return replies;
      }};
  auto pipe = std::move(*master.register_slave(1));
  auto run = [&](int count) {
    std::thread slave{[&] {
      for (int i = 0; i < count; ++i)
        std::ignore = pipe.run_slave(payload);
    }};
    for (int i = 0; i < count; ++i)
      std::ignore = master.run_master(payload);
    slave.join();
  };
  run(10);
  auto before = allocated.load();
  run(rounds);
  return allocated.load() - before;
}

} // namespace

// The sanitizers bring their own.
#if !defined(SYNCNORM_SANITIZED)
void* operator new(std::size_t size) {
  return count_and_allocate(size);
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

TEST_CASE_FIXTURE(system_fixture,
                  "what a round allocates does not grow with its payload") {
  constexpr int rounds = 1000;
  auto small = bytes_for_rounds(system, 2, rounds);
  auto large = bytes_for_rounds(system, 1'000'000, rounds);
  // A hundredth of one payload, over a thousand rounds: no copy of it.
  CHECK(large < small + 40'000);
}
