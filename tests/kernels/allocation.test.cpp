// No operation allocates memory: what it needs beside its arguments is in the
// caller's workspace.

#include "tests/kernels/arguments.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

thread_local int allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  if (auto* memory = std::malloc(bytes == 0 ? 1 : bytes))
    return memory;
  throw std::bad_alloc{};
}

void* counted_aligned(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  // The size must be a multiple.
  auto whole = (bytes / alignment + 1) * alignment;
  if (auto* memory = std::aligned_alloc(alignment, whole))
    return memory;
  throw std::bad_alloc{};
}

struct alignas(64) cache_line {
  int value;
};

/// How often `call` allocates.
template <class Call>
int allocations_of(const Call& call) {
  auto before = allocations;
  call();
  return allocations - before;
}

} // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_aligned(bytes, std::size_t(alignment));
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

TEST_CASE("no operation on the CPU allocates") {
  arguments a;
  CHECK(allocations_of([] { std::vector<int>(3).at(0) = 1; }) == 1);
  CHECK(allocations_of([] { std::vector<cache_line>(3).at(0) = {1}; }) == 1);
  auto none = [](const char* name, const auto& call) {
    auto made = allocations_of(call);
    CHECK_MESSAGE(made == 0, name);
  };
  none("batch_moments",
       [&] { batch_moments(a.run, a.x, a.moments, a.scratch); });
  none("finalize_moments", [&] {
    finalize_moments(a.run, a.part, a.options, a.first, a.second, a.running);
  });
  none("normalize", [&] { normalize(a.run, a.x, a.parameters, a.y, a.tail); });
  none("normalize_eval", [&] {
    normalize_eval(a.run, a.x, a.statistics, a.eps, a.mode, a.parameters, a.y,
                   a.tail);
  });
  none("backward_reduce", [&] {
    backward_reduce(a.run, a.dy, a.x, a.parameters, a.mask, a.sums, a.scratch);
  });
  none("backward_input", [&] {
    backward_input(a.run, a.dy, a.x, a.parameters, a.totals, a.mask, a.y,
                   a.residual_grad);
  });
  none("backward_input_eval", [&] {
    backward_input_eval(a.run, a.dy, a.statistics, a.eps, a.mode, a.parameters,
                        a.mask, a.y, a.residual_grad);
  });
  none("batch_norm_forward", [&] {
    batch_norm_forward(a.run, a.x, a.options, {a.first, a.second, a.running},
                       a.in, a.in, a.y, a.tail, a.scratch);
  });
  none("batch_norm_backward", [&] {
    batch_norm_backward(a.run, a.dy, a.x, a.parameters, a.mask, a.sums, a.y,
                        a.residual_grad, a.scratch);
  });
  none("round_array", [&] {
    round_array(a.run, static_cast<const double*>(a.scratch.data), a.count,
                static_cast<float*>(a.second));
  });
  none("clear_clamped", [&] {
    clear_clamped(a.run, a.in, a.eps, a.count, dtype::float32, a.second);
  });
}

TEST_CASE("a merge of thousands of parts allocates nothing either") {
  arguments a;
  const std::vector<const_moments_view> parts(3000, a.part);
  const std::vector<const void*> arrays(3000, a.in);
  auto merging =
      allocations_of([&] { merge_moments(a.run, parts, a.moments); });
  CHECK(merging == 0);
  auto adding = allocations_of(
      [&] { add_arrays(a.run, arrays, a.count, dtype::float32, a.first); });
  CHECK(adding == 0);
}
