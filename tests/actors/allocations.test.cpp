#include "tests/actors/participants.hpp"

#include <doctest/doctest.h>

#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

std::atomic<std::size_t> allocated = 0;
/// Bytes that were not freed yet.
std::atomic<std::int64_t> live = 0;

[[maybe_unused]] void* count_and_allocate(std::size_t size) {
  allocated += size;
  if (auto* memory = std::malloc(size)) {
    live += std::int64_t(malloc_usable_size(memory));
    return memory;
  }
  throw std::bad_alloc{};
}

[[maybe_unused]] void count_and_free(void* memory) {
  live -= std::int64_t(malloc_usable_size(memory));
  std::free(memory);
}

/// Bytes that stay when `self` has been a slave of so many masters, each of
/// which has ended.
std::int64_t bytes_after_masters(caf::actor_system& system,
                                 caf::scoped_actor& self, int masters) {
  auto before = live.load();
  for (int i = 0; i < masters; ++i) {
    auto master = spawn_sync_master<double, double>(
        system, {.layer = "bn1"}, [](std::span<identified<double>>) {
          return std::vector<identified<double>>{};
        });
    detail::request(self, master, register_slave_atom_v, std::int64_t{1})
        .receive([](const slave_ticket&) {},
                 [](const caf::error& reason) { FAIL(describe(reason)); });
  }
  return live - before;
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
  count_and_free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  count_and_free(memory);
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

TEST_CASE_FIXTURE(system_fixture,
                  "an actor that has been a slave of many masters keeps "
                  "nothing of those that have ended") {
  caf::scoped_actor self{system};
  std::ignore = bytes_after_masters(system, self, 100);
  // A master takes more than 1000 bytes.
  CHECK(bytes_after_masters(system, self, 1000) < 100'000);
}
