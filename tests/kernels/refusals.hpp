#pragma once

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/error.hpp"
#include "tests/kernels/arguments.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

// Every operation with arguments that can be broken. Each bad argument is
// refused with its code and the names of operation and argument, before
// anything is written.

namespace syncnorm::test {

inline constexpr auto wide = dtype::float64;
inline constexpr device gpu{device_type::cuda, 0};
inline constexpr auto not_a_number = std::numeric_limits<double>::quiet_NaN();
inline constexpr auto infinity = std::numeric_limits<double>::infinity();

struct operation {
  const char* name;
  void (*call)(arguments& a);
};

inline const operation batch_moments_op{
    "batch_moments",
    [](arguments& a) { batch_moments(a.run, a.x, a.moments, a.scratch); }};
inline const operation merge_op{
    "merge_moments", [](arguments& a) {
      merge_moments(a.run, std::vector{a.part, a.part}, a.moments);
    }};
inline const operation finalize_op{
    "finalize_moments", [](arguments& a) {
      finalize_moments(a.run, a.part, a.options, a.first, a.second, a.running);
    }};
inline const operation normalize_op{
    "normalize",
    [](arguments& a) { normalize(a.run, a.x, a.parameters, a.y, a.tail); }};
inline const operation normalize_eval_op{
    "normalize_eval", [](arguments& a) {
      normalize_eval(a.run, a.x, a.statistics, a.eps, a.mode, a.parameters, a.y,
                     a.tail);
    }};
inline const operation reduce_op{"backward_reduce", [](arguments& a) {
                                   backward_reduce(a.run, a.dy, a.x,
                                                   a.parameters, a.mask, a.sums,
                                                   a.scratch);
                                 }};
inline const operation input_op{"backward_input", [](arguments& a) {
                                  backward_input(a.run, a.dy, a.x, a.parameters,
                                                 a.totals, a.mask, a.y,
                                                 a.residual_grad);
                                }};
inline const operation input_eval_op{
    "backward_input_eval", [](arguments& a) {
      backward_input_eval(a.run, a.dy, a.statistics, a.eps, a.mode,
                          a.parameters, a.mask, a.y, a.residual_grad);
    }};

inline const operation forward_op{
    "batch_norm_forward", [](arguments& a) {
      batch_norm_forward(a.run, a.x, a.options, {a.first, a.second, a.running},
                         a.in, a.in, a.y, a.tail, a.scratch);
    }};
inline const operation backward_op{
    "batch_norm_backward", [](arguments& a) {
      batch_norm_backward(a.run, a.dy, a.x, a.parameters, a.mask, a.sums, a.y,
                          a.residual_grad, a.scratch);
    }};

inline const operation add_op{"add_arrays", [](arguments& a) {
                                const void* const parts[]{a.in, nullptr, a.in};
                                add_arrays(a.run, parts, a.moments.channels,
                                           a.moments.type, a.first);
                              }};
inline const operation round_op{
    "round_array", [](arguments& a) {
      round_array(a.run, static_cast<const double*>(a.scratch.data),
                  a.moments.channels, static_cast<float*>(a.first));
    }};
inline const operation clear_op{"clear_clamped", [](arguments& a) {
                                  clear_clamped(a.run, a.in, a.eps,
                                                a.moments.channels,
                                                a.moments.type, a.first);
                                }};

inline const operation all_operations[] = {
    batch_moments_op, merge_op, finalize_op,   normalize_op, normalize_eval_op,
    reduce_op,        input_op, input_eval_op, forward_op,   backward_op,
    add_op,           round_op, clear_op};

/// Breaks the arguments and expects the operation to refuse them.
template <class Break>
void refuses(const operation& op, errc code, const char* argument,
             const Break& broken) {
  INFO(std::string{op.name}, ", ", std::string{argument}, ", ",
       to_string(code));
  arguments a;
  broken(a);
  try {
    op.call(a);
    FAIL_CHECK("no error");
  } catch (const error& e) {
    INFO(std::string{e.what()});
    CHECK(e.code() == code);
    auto start = std::string{op.name} + ": " + argument + ": expected ";
    CHECK(std::string{e.what()}.rfind(start, 0) == 0);
    CHECK(std::string{e.what()}.find(", got ") != std::string::npos);
  }
  CHECK(a.untouched());
}

/// A view of the same memory with another layout.
template <class Change>
const_tensor_view changed(const const_tensor_view& view, const Change& change) {
  auto layout = view.layout();
  change(layout);
  return {view.data(), layout};
}

template <class Change>
tensor_view changed(const tensor_view& view, const Change& change) {
  auto layout = view.layout();
  change(layout);
  return {view.data(), layout};
}

inline const auto other_shape = [](tensor_layout& l) { l.shape.spatial = 3; };
inline const auto other_format = [](tensor_layout& l) {
  l.format = memory_format::channels_last;
};
inline const auto other_type = [](tensor_layout& l) {
  l.type = dtype::bfloat16;
};
inline const auto other_device = [](tensor_layout& l) { l.where = gpu; };
/// The same samples of 5 elements a channel, with gaps or without.
inline const auto with_gaps = [](tensor_layout& l) { l.shape.spatial = 5; };
inline const auto without_gaps = [](tensor_layout& l) {
  l.shape.spatial = 5;
  l.sample_stride = 25;
};
inline const auto other_stride = [](tensor_layout& l) { l.sample_stride += 1; };

} // namespace syncnorm::test
