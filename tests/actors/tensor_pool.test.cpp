#include "syncnorm/tensor_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

using namespace syncnorm;

namespace {

tensor_layout layout_of(std::int64_t samples) {
  std::array<std::int64_t, 2> sizes{samples, 100};
  return make_layout(dtype::float32, sizes);
}

const void* address(const shared_tensor& x) {
  return x.view().data();
}

void fill(const tensor_memory& x, float value) {
  auto* first = static_cast<float*>(x.view().data());
  std::fill_n(first, x.view().size(), value);
}

bool holds(const shared_tensor& x, float value) {
  const auto* first = static_cast<const float*>(x.view().data());
  return std::all_of(first, first + x.view().size(),
                     [value](float y) { return y == value; });
}

} // namespace

TEST_CASE("a tensor has the layout asked for, without gaps, aligned to 64 "
          "bytes") {
  tensor_pool pool;
  auto layout = layout_of(3);
  layout.sample_stride = 128;
  for (int i = 0; i < 3; ++i) {
    auto x = pool.take(layout);
    CHECK(x.view().shape() == layout.shape);
    CHECK(x.view().sample_stride() == 100);
    CHECK(reinterpret_cast<std::uintptr_t>(x.view().data()) % 64 == 0);
    fill(x, 1);
  }
  CHECK(pool.take(layout_of(0)).view().size() == 0);
}

TEST_CASE("a layout that no tensor can have is refused before memory is "
          "taken") {
  tensor_pool pool;
  auto layout = layout_of(3);
  SUBCASE("a negative size") {
    layout.shape.samples = -1;
  }
  SUBCASE("more than 2^63 - 1 bytes") {
    layout.shape.samples = std::int64_t{1} << 61;
  }
  SUBCASE("no channels") {
    layout.shape.channels = 0;
  }
  CHECK_THROWS_AS(std::ignore = pool.take(layout), error);
  CHECK_THROWS_AS(tensor_memory{layout}, error);
  CHECK(pool.idle() == 0);
}

TEST_CASE("memory that no stream has asked for is the host's, wherever the "
          "layout says that its tensor is") {
  tensor_pool pool;
  auto layout = layout_of(3);
  layout.where = {device_type::cuda, 0};
  CHECK(pool.take(layout).view().where() == device{});
  CHECK(tensor_memory{layout}.view().where() == device{});
}

TEST_CASE("memory is used again when the last who shares it has let go, and "
          "not before") {
  tensor_pool pool;
  auto first = pool.take(layout_of(40)).share();
  auto part = std::optional{first.samples(3, 2)};
  auto second = pool.take(layout_of(40)).share();
  CHECK(address(second) != address(first));
  const auto* was = address(first);
  first = {};
  CHECK(address(pool.take(layout_of(40)).share()) != was);
  part.reset();
  // One or two samples less take the same block.
  CHECK(address(pool.take(layout_of(39)).share()) == was);
  // Another size does not.
  CHECK(address(pool.take(layout_of(400)).share()) != was);
}

TEST_CASE("tensors outlive their pool") {
  shared_tensor x;
  {
    tensor_pool pool;
    auto memory = pool.take(layout_of(10));
    fill(memory, 7);
    x = memory.share();
    tensor_pool other{std::move(pool)};
    std::ignore = other.take(layout_of(10));
  }
  CHECK(holds(x, 7));
}

TEST_CASE("a few blocks wait to be used again, not all that ever were in use, "
          "and none of another size") {
  tensor_pool pool;
  std::vector<shared_tensor> all;
  std::set<const void*> addresses;
  for (std::size_t i = 0; i < 4 * tensor_pool::max_idle; ++i) {
    all.push_back(pool.take(layout_of(10)).share());
    addresses.insert(all.back().view().data());
  }
  CHECK(addresses.size() == all.size());
  CHECK(pool.idle() == 0);
  all.resize(3);
  CHECK(pool.idle() == tensor_pool::max_idle);
  auto same = pool.take(layout_of(10));
  CHECK(pool.idle() == tensor_pool::max_idle - 1);
  auto other = pool.take(layout_of(1000));
  CHECK(pool.idle() == 0);
}

TEST_CASE("memory comes back from any thread while more is taken") {
  constexpr int rounds = 20'000;
  constexpr std::size_t threads = 3;
  tensor_pool pool;
  // A slot is full while a thread has to let go of what is in it.
  struct slot {
    std::atomic<bool> full = false;
    shared_tensor x;
    float value = 0;
  };
  std::array<slot, threads> slots;
  std::atomic<bool> wrong = false;
  std::vector<std::thread> receivers;
  for (auto& mine : slots)
    receivers.emplace_back([&mine, &wrong] {
      for (int i = 0; i < rounds; ++i) {
        mine.full.wait(false);
        if (!holds(mine.x, mine.value))
          wrong = true;
        mine.x = {};
        mine.full = false;
        mine.full.notify_one();
      }
    });
  for (int i = 0; i < rounds; ++i)
    for (auto& to : slots) {
      auto memory = pool.take(layout_of(2));
      fill(memory, static_cast<float>(i));
      to.full.wait(true);
      to.value = static_cast<float>(i);
      to.x = memory.share();
      to.full = true;
      to.full.notify_one();
    }
  for (auto& x : receivers)
    x.join();
  CHECK(!wrong);
}
