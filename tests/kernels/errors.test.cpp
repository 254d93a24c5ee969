// Every bad argument is refused with its code, the operation's and the
// argument's name, before anything is written.

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/error.hpp"
#include "tests/kernels/arguments.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

constexpr auto wide = dtype::float64;
constexpr device gpu{device_type::cuda, 0};
constexpr auto not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinity = std::numeric_limits<double>::infinity();

struct operation {
  const char* name;
  void (*call)(arguments& a);
};

const operation batch_moments_op{
    "batch_moments",
    [](arguments& a) { batch_moments(a.run, a.x, a.moments, a.scratch); }};
const operation merge_op{
    "merge_moments", [](arguments& a) {
      merge_moments(a.run, std::vector{a.part, a.part}, a.moments);
    }};
const operation finalize_op{"finalize_moments", [](arguments& a) {
                              finalize_moments(a.run, a.part, a.options,
                                               a.first, a.second, a.running);
                            }};
const operation normalize_op{"normalize", [](arguments& a) {
                               normalize(a.run, a.x, a.parameters, a.y, a.tail);
                             }};
const operation normalize_eval_op{"normalize_eval", [](arguments& a) {
                                    normalize_eval(a.run, a.x, a.statistics,
                                                   a.eps, a.mode, a.parameters,
                                                   a.y, a.tail);
                                  }};
const operation reduce_op{"backward_reduce", [](arguments& a) {
                            backward_reduce(a.run, a.dy, a.x, a.parameters,
                                            a.mask, a.sums, a.scratch);
                          }};
const operation input_op{"backward_input", [](arguments& a) {
                           backward_input(a.run, a.dy, a.x, a.parameters,
                                          a.totals, a.mask, a.y,
                                          a.residual_grad);
                         }};
const operation input_eval_op{"backward_input_eval", [](arguments& a) {
                                backward_input_eval(
                                    a.run, a.dy, a.statistics, a.eps, a.mode,
                                    a.parameters, a.mask, a.y, a.residual_grad);
                              }};

const operation forward_op{
    "batch_norm_forward", [](arguments& a) {
      batch_norm_forward(a.run, a.x, a.options, {a.first, a.second, a.running},
                         a.in, a.in, a.y, a.tail, a.scratch);
    }};
const operation backward_op{"batch_norm_backward", [](arguments& a) {
                              batch_norm_backward(
                                  a.run, a.dy, a.x, a.parameters, a.mask,
                                  a.sums, a.y, a.residual_grad, a.scratch);
                            }};

const operation add_op{"add_arrays", [](arguments& a) {
                         const void* const parts[]{a.in, nullptr, a.in};
                         add_arrays(a.run, parts, a.moments.channels,
                                    a.moments.type, a.first);
                       }};
const operation round_op{
    "round_array", [](arguments& a) {
      round_array(a.run, static_cast<const double*>(a.scratch.data),
                  a.moments.channels, static_cast<float*>(a.first));
    }};
const operation clear_op{"clear_clamped", [](arguments& a) {
                           clear_clamped(a.run, a.in, a.eps, a.moments.channels,
                                         a.moments.type, a.first);
                         }};

const operation all_operations[] = {
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

const auto other_shape = [](tensor_layout& l) { l.shape.spatial = 3; };
const auto other_format = [](tensor_layout& l) {
  l.format = memory_format::channels_last;
};
const auto other_type = [](tensor_layout& l) { l.type = dtype::bfloat16; };
const auto other_device = [](tensor_layout& l) { l.where = gpu; };
/// The same samples of 5 elements a channel, with gaps or without.
const auto with_gaps = [](tensor_layout& l) { l.shape.spatial = 5; };
const auto without_gaps = [](tensor_layout& l) {
  l.shape.spatial = 5;
  l.sample_stride = 25;
};
const auto other_stride = [](tensor_layout& l) { l.sample_stride += 1; };

} // namespace

TEST_CASE("good arguments are refused by no operation") {
  for (const auto& op : all_operations) {
    arguments a;
    CHECK_NOTHROW(op.call(a));
  }
}

TEST_CASE("every operation refuses a bad execution") {
  for (const auto& op : all_operations) {
    refuses(op, errc::invalid_argument, "run.where",
            [](auto& a) { a.run.where.index = -1; });
    refuses(op, errc::invalid_argument, "run.where",
            [](auto& a) { a.run.where.type = device_type{9}; });
    static constexpr parallel_for no_function{nullptr, nullptr, 2};
    refuses(op, errc::invalid_argument, "run.split->run",
            [](auto& a) { a.run.split = &no_function; });
    static constexpr parallel_for no_parts{
        [](void*, std::int64_t, parallel_for::body_type, void*) {}, nullptr, 0};
    refuses(op, errc::invalid_argument, "run.split->parts",
            [](auto& a) { a.run.split = &no_parts; });
  }
}

TEST_CASE("every operation refuses a tensor that is none") {
  auto no_tensor = [](auto& a) {
    a.x = {};
    a.dy = {};
  };
  for (const auto& op : {batch_moments_op, normalize_op, normalize_eval_op,
                         reduce_op, forward_op, backward_op})
    refuses(op, errc::invalid_argument, "x", no_tensor);
  for (const auto& op : {input_op, input_eval_op})
    refuses(op, errc::invalid_argument, "dy", no_tensor);
}

TEST_CASE("batch_moments refuses what does not fit together") {
  const auto& op = batch_moments_op;
  refuses(op, errc::device_mismatch, "x",
          [](auto& a) { a.x = changed(a.x, other_device); });
  refuses(op, errc::shape_mismatch, "out",
          [](auto& a) { a.moments.channels = 4; });
  refuses(op, errc::shape_mismatch, "out",
          [](auto& a) { a.moments.channels = -1; });
  refuses(op, errc::dtype_mismatch, "out",
          [](auto& a) { a.moments.type = dtype::float16; });
  refuses(op, errc::dtype_mismatch, "out", [](auto& a) {
    a.x = changed(a.x, [](auto& l) {
      l.type = wide;
      l.shape.spatial = 3;
    });
  });
  refuses(op, errc::device_mismatch, "out",
          [](auto& a) { a.moments.where = gpu; });
  refuses(op, errc::invalid_argument, "out.mean",
          [](auto& a) { a.moments.mean = nullptr; });
  refuses(op, errc::invalid_argument, "out.m2",
          [](auto& a) { a.moments.m2 = nullptr; });
  refuses(op, errc::invalid_argument, "out.m2",
          [](auto& a) { a.moments.m2 = moved(a.second, 1); });
  refuses(op, errc::invalid_argument, "out.m2",
          [](auto& a) { a.moments.m2 = moved(a.first, 4); });
}

TEST_CASE("a reduction refuses a workspace that does not do") {
  for (const auto& op : {batch_moments_op, reduce_op}) {
    refuses(op, errc::workspace_too_small, "scratch", [](auto& a) {
      a.scratch.bytes = batch_moments_workspace(a.layout) - 1;
    });
    refuses(op, errc::workspace_too_small, "scratch",
            [](auto& a) { a.scratch = {}; });
    refuses(op, errc::invalid_argument, "scratch",
            [](auto& a) { a.scratch.data = nullptr; });
    refuses(op, errc::invalid_argument, "scratch",
            [](auto& a) { a.scratch.data = moved(a.scratch.data, 8); });
  }
}

TEST_CASE("merge_moments refuses parts that cannot be merged") {
  const auto& op = merge_op;
  refuses(op, errc::shape_mismatch, "parts[0]",
          [](auto& a) { a.part.channels = 4; });
  refuses(op, errc::dtype_mismatch, "parts[0]", [](auto& a) {
    a.part.type = wide;
    a.part.mean = a.part.m2 = a.scratch.data;
  });
  refuses(op, errc::dtype_mismatch, "parts[0]",
          [](auto& a) { a.part.type = dtype::bfloat16; });
  refuses(op, errc::device_mismatch, "parts[0]",
          [](auto& a) { a.part.where = gpu; });
  refuses(op, errc::invalid_argument, "parts[0]",
          [](auto& a) { a.part.count = -1; });
  refuses(op, errc::invalid_argument, "parts[0].mean",
          [](auto& a) { a.part.mean = nullptr; });
  refuses(op, errc::invalid_argument, "parts[0].m2",
          [](auto& a) { a.part.m2 = moved(a.in, 2); });
  refuses(op, errc::invalid_argument, "parts[1]", [](auto& a) {
    a.part.count = std::numeric_limits<std::int64_t>::max() / 2 + 1;
  });
  refuses(op, errc::invalid_argument, "parts[0]",
          [](auto& a) { a.part.mean = moved(a.first, 4); });
  refuses(op, errc::invalid_argument, "parts[1]", [](auto& a) {
    a.part.mean = a.first;
    a.part.m2 = a.second;
  });
  refuses(op, errc::invalid_argument, "out.mean",
          [](auto& a) { a.moments.mean = nullptr; });
  refuses({"merge_moments",
           [](arguments& a) { merge_moments(a.run, {}, a.moments); }},
          errc::invalid_argument, "parts", [](auto&) {});
}

TEST_CASE("finalize_moments refuses options and arrays that do not do") {
  const auto& op = finalize_op;
  refuses(op, errc::invalid_argument, "total",
          [](auto& a) { a.part.count = -2; });
  refuses(op, errc::shape_mismatch, "total",
          [](auto& a) { a.part.channels = 0; });
  refuses(op, errc::device_mismatch, "total",
          [](auto& a) { a.part.where = gpu; });
  for (auto eps : {-1e-9, not_a_number, infinity})
    refuses(op, errc::invalid_argument, "options.eps",
            [eps](auto& a) { a.options.eps = eps; });
  for (auto momentum : {-0.1, 1.1, not_a_number})
    refuses(op, errc::invalid_argument, "options.momentum",
            [momentum](auto& a) { a.options.momentum = momentum; });
  refuses(op, errc::invalid_argument, "options.mode",
          [](auto& a) { a.options.mode = eps_mode{7}; });
  refuses(op, errc::invalid_argument, "mean",
          [](auto& a) { a.first = nullptr; });
  refuses(op, errc::invalid_argument, "inv_std",
          [](auto& a) { a.second = nullptr; });
  refuses(op, errc::invalid_argument, "inv_std",
          [](auto& a) { a.second = a.first; });
  refuses(op, errc::invalid_argument, "inv_std",
          [](auto& a) { a.second = moved(a.second, 2); });
  refuses(op, errc::invalid_argument, "running",
          [](auto& a) { a.running.var = nullptr; });
  refuses(op, errc::invalid_argument, "running",
          [](auto& a) { a.running.mean = nullptr; });
  refuses(op, errc::invalid_argument, "running.var", [](auto& a) {
    a.running.mean = a.scratch.data;
    a.running.var = moved(a.scratch.data, 2);
  });
}

TEST_CASE("finalize_moments refuses arrays that would overwrite each other") {
  const auto& op = finalize_op;
  refuses(op, errc::invalid_argument, "mean", [](auto& a) {
    a.running = {a.first, a.scratch.data};
  });
  refuses(op, errc::invalid_argument, "inv_std", [](auto& a) {
    a.running = {a.scratch.data, moved(a.second, -4)};
  });
  refuses(op, errc::invalid_argument, "running.var", [](auto& a) {
    a.running = {a.scratch.data, a.scratch.data};
  });
  refuses(op, errc::invalid_argument, "mean",
          [](auto& a) { a.part.mean = moved(a.first, -4); });
  refuses(op, errc::invalid_argument, "inv_std",
          [](auto& a) { a.part.m2 = moved(a.second, 4); });
  refuses(op, errc::invalid_argument, "running.mean", [](auto& a) {
    a.running = {moved(a.in, 4), a.scratch.data};
  });
  refuses(op, errc::invalid_argument, "running.var", [](auto& a) {
    a.running = {a.scratch.data, moved(a.in, -4)};
  });
  // Each channel is read before it is written.
  arguments a;
  a.part.m2 = a.residual_grad;
  a.running = {a.in, a.residual_grad};
  CHECK_NOTHROW(op.call(a));
}

TEST_CASE("a number that is refused is told with all its digits") {
  arguments a;
  a.options.eps = -1e-9;
  try {
    finalize_op.call(a);
    FAIL_CHECK("no error");
  } catch (const error& e) {
    CHECK(std::string{e.what()}.find("got -1e-09") != std::string::npos);
  }
}

TEST_CASE("the forward passes refuse what does not fit together") {
  for (const auto& op : {normalize_op, normalize_eval_op}) {
    refuses(op, errc::shape_mismatch, "y",
            [](auto& a) { a.y = changed(a.y, other_shape); });
    refuses(op, errc::shape_mismatch, "y",
            [](auto& a) { a.y = changed(a.y, other_format); });
    refuses(op, errc::dtype_mismatch, "y",
            [](auto& a) { a.y = changed(a.y, other_type); });
    refuses(op, errc::device_mismatch, "y",
            [](auto& a) { a.y = changed(a.y, other_device); });
    refuses(op, errc::invalid_argument, "y",
            [](auto& a) { a.x = changed(a.y, other_stride); });
    refuses(op, errc::invalid_argument, "tail.residual",
            [](auto& a) { a.tail.residual = moved(a.residual_grad, 2); });
    refuses(op, errc::invalid_argument, "tail.mask",
            [](auto& a) { a.tail.mask += 4; });
    refuses(op, errc::invalid_argument, "tail.mask",
            [](auto& a) { a.tail.relu = false; });
    refuses(op, errc::invalid_argument, "parameters.weight",
            [](auto& a) { a.parameters.weight = moved(a.in, 1); });
    refuses(op, errc::invalid_argument, "parameters.bias",
            [](auto& a) { a.parameters.bias = moved(a.in, 1); });
  }
  refuses(normalize_op, errc::invalid_argument, "parameters.mean",
          [](auto& a) { a.parameters.mean = nullptr; });
  refuses(normalize_op, errc::invalid_argument, "parameters.inv_std",
          [](auto& a) { a.parameters.inv_std = nullptr; });
  refuses(normalize_eval_op, errc::invalid_argument, "statistics.mean",
          [](auto& a) { a.statistics.mean = nullptr; });
}

TEST_CASE("the forward passes refuse memory that they would read too late") {
  for (const auto& op : {normalize_op, normalize_eval_op, forward_op}) {
    refuses(op, errc::invalid_argument, "y", [](auto& a) {
      a.x = {moved(a.y.data(), 4), a.layout};
    });
    refuses(op, errc::invalid_argument, "tail.residual",
            [](auto& a) { a.tail.residual = moved(a.y.data(), -4); });
    refuses(op, errc::invalid_argument, "tail.residual", [](auto& a) {
      a.x = changed(a.x, with_gaps);
      a.y = changed(a.y, without_gaps);
      a.tail.residual = a.x.data();
    });
  }
}

TEST_CASE("no array of a channel lies where an operation writes") {
  auto in_output = [](auto& a) { a.in = a.y.data(); };
  for (auto with : {&channel_parameters::mean, &channel_parameters::inv_std,
                    &channel_parameters::weight, &channel_parameters::bias}) {
    refuses(normalize_op, errc::invalid_argument, "y",
            [with](auto& a) { a.parameters.*with = moved(a.y.data(), 4); });
    if (with == &channel_parameters::bias)
      continue;
    refuses(input_op, errc::invalid_argument, "dx",
            [with](auto& a) { a.parameters.*with = moved(a.y.data(), 4); });
    refuses(input_op, errc::invalid_argument, "residual_grad",
            [with](auto& a) { a.parameters.*with = a.residual_grad; });
    refuses(backward_op, errc::invalid_argument, "dx",
            [with](auto& a) { a.parameters.*with = moved(a.y.data(), 4); });
    refuses(backward_op, errc::invalid_argument, "out.sum_dy",
            [with](auto& a) { a.parameters.*with = a.sums.sum_dy; });
  }
  for (auto with : {&running_statistics::mean, &running_statistics::var})
    refuses(normalize_eval_op, errc::invalid_argument, "y",
            [with](auto& a) { a.statistics.*with = a.y.data(); });
  refuses(input_eval_op, errc::invalid_argument, "dx",
          [](auto& a) { a.statistics.var = a.y.data(); });
  for (auto with : {&total_sums::sum_dy, &total_sums::sum_dy_xmu})
    refuses(input_op, errc::invalid_argument, "dx",
            [with](auto& a) { a.totals.*with = a.y.data(); });
  refuses(forward_op, errc::invalid_argument, "y", in_output);
  refuses(forward_op, errc::invalid_argument, "statistics.mean",
          [](auto& a) { a.in = moved(a.first, 16); });
  refuses(forward_op, errc::invalid_argument, "statistics.inv_std",
          [](auto& a) { a.second = moved(a.y.data(), 8); });
  refuses(forward_op, errc::invalid_argument, "statistics.running.var",
          [](auto& a) {
            a.running = {a.residual_grad, a.in};
          });
  refuses(clear_op, errc::invalid_argument, "sum_dy_xmu",
          [](auto& a) { a.in = a.first; });
}

TEST_CASE("a reduction's sums are apart from what it reads") {
  for (const auto& op : {reduce_op, backward_op}) {
    refuses(op, errc::invalid_argument, "out.sum_dy", [](auto& a) {
      a.sums.weight_grad = a.residual_grad;
      a.parameters.inv_std = a.sums.sum_dy;
      a.residual_grad = nullptr;
    });
    refuses(op, errc::invalid_argument, "out.sum_dy_xmu",
            [](auto& a) { a.parameters.mean = moved(a.second, -16); });
    refuses(op, errc::invalid_argument, "out.bias_grad",
            [](auto& a) { a.sums.bias_grad = const_cast<void*>(a.x.data()); });
    refuses(op, errc::invalid_argument, "out.sum_dy", [](auto& a) {
      a.mask = moved(static_cast<const std::uint8_t*>(a.sums.sum_dy), 0);
    });
  }
  refuses(backward_op, errc::invalid_argument, "out.weight_grad", [](auto& a) {
    a.sums.weight_grad = const_cast<void*>(a.parameters.weight);
  });
  // Which the reduction alone does not read.
  arguments a;
  a.parameters.weight = a.residual_grad;
  a.sums.weight_grad = a.residual_grad;
  CHECK_NOTHROW(reduce_op.call(a));
}

TEST_CASE("a mask lies where nothing else does") {
  auto at = [](const void* p) {
    return static_cast<std::uint8_t*>(const_cast<void*>(p));
  };
  for (const auto& op : {normalize_op, normalize_eval_op, forward_op}) {
    refuses(op, errc::invalid_argument, "tail.mask",
            [at](auto& a) { a.tail.mask = at(a.y.data()); });
    refuses(op, errc::invalid_argument, "tail.mask",
            [at](auto& a) { a.tail.mask = at(moved(a.x.data(), 64)); });
    refuses(op, errc::invalid_argument, "tail.mask", [at](auto& a) {
      a.tail.residual = a.residual_grad;
      a.tail.mask = at(a.residual_grad);
    });
  }
  for (const auto& op : {input_op, input_eval_op, backward_op}) {
    refuses(op, errc::invalid_argument, "dx",
            [at](auto& a) { a.mask = at(a.y.data()); });
    refuses(op, errc::invalid_argument, "residual_grad",
            [at](auto& a) { a.mask = at(a.residual_grad); });
  }
}

TEST_CASE("a workspace has no argument in it") {
  auto in_scratch = [](auto& a) { return moved(a.scratch.data, 64); };
  refuses(batch_moments_op, errc::invalid_argument, "scratch",
          [&](auto& a) { a.moments.m2 = in_scratch(a); });
  for (const auto& op : {batch_moments_op, reduce_op, forward_op, backward_op})
    refuses(op, errc::invalid_argument, "scratch", [&](auto& a) {
      a.x = {in_scratch(a), a.layout};
      a.dy = a.x;
    });
  for (const auto& op : {reduce_op, forward_op, backward_op}) {
    refuses(op, errc::invalid_argument, "scratch", [&](auto& a) {
      a.in = in_scratch(a);
      a.parameters = {a.in, a.in, a.in, a.in};
    });
    refuses(op, errc::invalid_argument, "scratch", [&](auto& a) {
      a.second = in_scratch(a);
      a.sums.sum_dy_xmu = a.second;
    });
  }
}

TEST_CASE("samples of one tensor may lie between those of another") {
  for (const auto& op : all_operations) {
    arguments a;
    tensor_layout both{dtype::float32, {2, 5, 12}, {}, 60, {}};
    tensor memory{both, random_values(both.shape, 3)};
    auto half = a.layout;
    half.sample_stride = 60;
    a.x = {memory.view().data(), half};
    a.dy = a.x;
    a.y = {moved(memory.view().data(), 30 * 4), half};
    // It would have the sample stride of y, and more memory.
    a.residual_grad = nullptr;
    CHECK_NOTHROW(op.call(a));
  }
}

TEST_CASE("the whole passes refuse what their steps refuse") {
  for (const auto& op : {forward_op, backward_op})
    refuses(op, errc::workspace_too_small, "scratch",
            [](auto& a) { a.scratch.bytes = 64; });
  const auto& forward = forward_op;
  refuses(forward, errc::shape_mismatch, "y",
          [](auto& a) { a.y = changed(a.y, other_shape); });
  refuses(forward, errc::invalid_argument, "tail.mask",
          [](auto& a) { a.tail.relu = false; });
  refuses(forward, errc::invalid_argument, "options.momentum",
          [](auto& a) { a.options.momentum = 2; });
  refuses(forward, errc::invalid_argument, "statistics.mean",
          [](auto& a) { a.first = nullptr; });
  refuses(forward, errc::invalid_argument, "statistics.inv_std",
          [](auto& a) { a.second = a.first; });
  refuses(forward, errc::invalid_argument, "options.eps",
          [](auto& a) { a.options.eps = -1; });
  refuses(forward, errc::invalid_argument, "statistics.running",
          [](auto& a) { a.running.mean = nullptr; });
  refuses(forward, errc::invalid_argument, "statistics.running.mean",
          [](auto& a) {
            a.running = {moved(a.residual_grad, 1), a.residual_grad};
          });
  refuses(forward, errc::invalid_argument, "statistics.mean", [](auto& a) {
    a.running = {a.first, a.scratch.data};
  });
  refuses(forward, errc::invalid_argument, "statistics.inv_std", [](auto& a) {
    a.running = {a.scratch.data, moved(a.second, 4)};
  });
  refuses(forward, errc::invalid_argument, "statistics.running.var",
          [](auto& a) {
            a.running = {a.scratch.data, a.scratch.data};
          });
  refuses(forward, errc::invalid_argument, "weight",
          [](auto& a) { a.in = moved(a.in, 2); });
  const auto& backward = backward_op;
  refuses(backward, errc::dtype_mismatch, "dy",
          [](auto& a) { a.dy = changed(a.dy, other_type); });
  refuses(backward, errc::shape_mismatch, "dx",
          [](auto& a) { a.y = changed(a.y, other_format); });
  refuses(backward, errc::invalid_argument, "out.sum_dy",
          [](auto& a) { a.sums.sum_dy = nullptr; });
  refuses(backward, errc::invalid_argument, "parameters.inv_std",
          [](auto& a) { a.parameters.inv_std = nullptr; });
  refuses(backward, errc::invalid_argument, "residual_grad",
          [](auto& a) { a.residual_grad = a.y.data(); });
}

TEST_CASE("a whole pass refuses a workspace that does not do") {
  refuses(forward_op, errc::workspace_too_small, "scratch", [](auto& a) {
    a.scratch.bytes = batch_norm_forward_workspace(a.layout) - 1;
  });
  refuses(backward_op, errc::workspace_too_small, "scratch", [](auto& a) {
    a.scratch.bytes = batch_norm_backward_workspace(a.layout) - 1;
  });
  for (const auto& op : {forward_op, backward_op}) {
    refuses(op, errc::invalid_argument, "scratch",
            [](auto& a) { a.scratch.data = nullptr; });
    refuses(op, errc::invalid_argument, "scratch",
            [](auto& a) { a.scratch.data = moved(a.scratch.data, 8); });
  }
}

TEST_CASE("add_arrays and clear_clamped refuse arrays that do not do") {
  for (const auto& op : {add_op, clear_op})
    refuses(op, errc::dtype_mismatch, "type",
            [](auto& a) { a.moments.type = dtype::float16; });
  refuses(add_op, errc::invalid_argument, "elements",
          [](auto& a) { a.moments.channels = 0; });
  refuses(add_op, errc::invalid_argument, "out",
          [](auto& a) { a.first = nullptr; });
  refuses(add_op, errc::invalid_argument, "out",
          [](auto& a) { a.first = moved(a.first, 2); });
  refuses(add_op, errc::invalid_argument, "parts[0]",
          [](auto& a) { a.in = moved(a.in, 2); });
  refuses(add_op, errc::invalid_argument, "parts[0]",
          [](auto& a) { a.in = moved(a.first, 4); });
  // The output may be the first part, but no other.
  refuses(add_op, errc::invalid_argument, "parts[2]",
          [](auto& a) { a.in = a.first; });
  refuses(
      {"add_arrays",
       [](arguments& a) { add_arrays(a.run, {}, 5, dtype::float32, a.first); }},
      errc::invalid_argument, "parts", [](auto&) {});
  refuses(clear_op, errc::shape_mismatch, "channels",
          [](auto& a) { a.moments.channels = -1; });
  for (auto eps : {-1e-9, not_a_number, infinity})
    refuses(clear_op, errc::invalid_argument, "eps",
            [eps](auto& a) { a.eps = eps; });
  refuses(clear_op, errc::invalid_argument, "inv_std",
          [](auto& a) { a.in = nullptr; });
  refuses(clear_op, errc::invalid_argument, "sum_dy_xmu",
          [](auto& a) { a.first = moved(a.first, 2); });
}

TEST_CASE("round_array refuses arrays that do not do") {
  refuses(round_op, errc::invalid_argument, "elements",
          [](auto& a) { a.moments.channels = 0; });
  refuses(round_op, errc::invalid_argument, "from",
          [](auto& a) { a.scratch.data = nullptr; });
  refuses(round_op, errc::invalid_argument, "from",
          [](auto& a) { a.scratch.data = moved(a.scratch.data, 4); });
  refuses(round_op, errc::invalid_argument, "out",
          [](auto& a) { a.first = nullptr; });
  refuses(round_op, errc::invalid_argument, "out",
          [](auto& a) { a.first = moved(a.first, 2); });
  // The last element that is read, and the first that is written.
  refuses(round_op, errc::invalid_argument, "out", [](auto& a) {
    a.first = moved(a.scratch.data, 8 * arguments::count - 4);
  });
}

TEST_CASE("evaluation refuses statistics and epsilons that do not do") {
  for (const auto& op : {normalize_eval_op, input_eval_op}) {
    refuses(op, errc::invalid_argument, "statistics.var",
            [](auto& a) { a.statistics.var = nullptr; });
    refuses(op, errc::invalid_argument, "eps", [](auto& a) { a.eps = -1; });
    refuses(op, errc::invalid_argument, "mode",
            [](auto& a) { a.mode = eps_mode{2}; });
  }
}

TEST_CASE("backward_reduce refuses what does not fit together") {
  const auto& op = reduce_op;
  refuses(op, errc::shape_mismatch, "dy",
          [](auto& a) { a.dy = changed(a.dy, other_shape); });
  refuses(op, errc::dtype_mismatch, "dy",
          [](auto& a) { a.dy = changed(a.dy, other_type); });
  refuses(op, errc::device_mismatch, "dy",
          [](auto& a) { a.dy = changed(a.dy, other_device); });
  refuses(op, errc::invalid_argument, "mask",
          [](auto& a) { a.mask = moved(a.mask, 2); });
  refuses(op, errc::invalid_argument, "parameters.mean",
          [](auto& a) { a.parameters.mean = nullptr; });
  refuses(op, errc::invalid_argument, "parameters.inv_std", [](auto& a) {
    a.parameters.inv_std = nullptr;
    a.sums.weight_grad = a.scratch.data;
  });
  refuses(op, errc::invalid_argument, "out.sum_dy",
          [](auto& a) { a.sums.sum_dy = nullptr; });
  refuses(op, errc::invalid_argument, "out.sum_dy_xmu",
          [](auto& a) { a.sums.sum_dy_xmu = nullptr; });
  refuses(op, errc::invalid_argument, "out.sum_dy_xmu",
          [](auto& a) { a.sums.sum_dy_xmu = moved(a.sums.sum_dy, 16); });
  refuses(op, errc::invalid_argument, "out.weight_grad",
          [](auto& a) { a.sums.weight_grad = moved(a.first, 2); });
  refuses(op, errc::invalid_argument, "out.bias_grad",
          [](auto& a) { a.sums.bias_grad = moved(a.first, 2); });
}

TEST_CASE("a reduction's sums and gradients are arrays apart") {
  for (const auto& op : {reduce_op, backward_op}) {
    for (auto with : {&backward_sums::sum_dy, &backward_sums::sum_dy_xmu})
      refuses(op, errc::invalid_argument, "out.weight_grad",
              [with](auto& a) { a.sums.weight_grad = a.sums.*with; });
    refuses(op, errc::invalid_argument, "out.bias_grad",
            [](auto& a) { a.sums.bias_grad = a.sums.sum_dy_xmu; });
    refuses(op, errc::invalid_argument, "out.bias_grad",
            [](auto& a) { a.sums.bias_grad = moved(a.sums.sum_dy, 4); });
    refuses(op, errc::invalid_argument, "out.bias_grad", [](auto& a) {
      a.sums.weight_grad = a.sums.bias_grad = a.scratch.data;
    });
    arguments a;
    a.sums.bias_grad = a.sums.sum_dy;
    CHECK_NOTHROW(op.call(a));
  }
}

TEST_CASE("the input's gradient refuses what does not fit together") {
  for (const auto& op : {input_op, backward_op})
    refuses(op, errc::invalid_argument, "dx",
            [](auto& a) { a.x = changed(a.y, other_stride); });
  for (const auto& op : {input_op, input_eval_op}) {
    refuses(op, errc::shape_mismatch, "dx",
            [](auto& a) { a.y = changed(a.y, other_shape); });
    refuses(op, errc::dtype_mismatch, "dx",
            [](auto& a) { a.y = changed(a.y, other_type); });
    refuses(op, errc::device_mismatch, "dx",
            [](auto& a) { a.y = changed(a.y, other_device); });
    refuses(op, errc::invalid_argument, "dx",
            [](auto& a) { a.dy = changed(a.y, other_stride); });
    refuses(op, errc::invalid_argument, "mask",
            [](auto& a) { a.mask = moved(a.mask, 1); });
    refuses(op, errc::invalid_argument, "residual_grad",
            [](auto& a) { a.residual_grad = a.y.data(); });
    refuses(op, errc::invalid_argument, "residual_grad",
            [](auto& a) { a.residual_grad = moved(a.residual_grad, 1); });
    refuses(op, errc::invalid_argument, "residual_grad", [](auto& a) {
      a.dy = changed(a.dy, with_gaps);
      a.x = a.dy;
      a.y = changed(a.y, without_gaps);
      a.residual_grad = const_cast<void*>(a.dy.data());
    });
    refuses(op, errc::invalid_argument, "dx", [](auto& a) {
      a.dy = {moved(a.y.data(), 4), a.layout};
    });
    refuses(op, errc::invalid_argument, "residual_grad",
            [](auto& a) { a.residual_grad = moved(a.y.data(), 4); });
    refuses(op, errc::invalid_argument, "parameters.weight",
            [](auto& a) { a.parameters.weight = moved(a.in, 1); });
  }
  for (const auto& op : {input_op, backward_op})
    refuses(op, errc::invalid_argument, "residual_grad", [](auto& a) {
      a.dy = changed(tensor_view{a.residual_grad, a.layout}, with_gaps);
      a.x = changed(a.x, with_gaps);
      a.y = changed(a.y, without_gaps);
      a.residual_grad = const_cast<void*>(a.x.data());
    });
  refuses(input_op, errc::shape_mismatch, "x",
          [](auto& a) { a.x = changed(a.x, other_format); });
  refuses(input_op, errc::invalid_argument, "parameters.mean",
          [](auto& a) { a.parameters.mean = nullptr; });
  refuses(input_op, errc::invalid_argument, "parameters.inv_std",
          [](auto& a) { a.parameters.inv_std = nullptr; });
  refuses(input_op, errc::invalid_argument, "sums.sum_dy",
          [](auto& a) { a.totals.sum_dy = nullptr; });
  refuses(input_op, errc::invalid_argument, "sums.sum_dy_xmu",
          [](auto& a) { a.totals.sum_dy_xmu = nullptr; });
  refuses(input_op, errc::invalid_argument, "sums.count",
          [](auto& a) { a.totals.count = 11; });
}

#ifndef SYNCNORM_HAS_CUDA

TEST_CASE("a size of a workspace that is refused names its function") {
  const std::pair<const char*, std::size_t (*)(const tensor_layout&)> sizes[]{
      {"batch_moments_workspace", batch_moments_workspace},
      {"backward_reduce_workspace", backward_reduce_workspace},
      {"batch_norm_forward_workspace", batch_norm_forward_workspace},
      {"batch_norm_backward_workspace", batch_norm_backward_workspace}};
  for (const auto& size : sizes) {
    arguments a;
    a.layout.where = gpu;
    try {
      (void) size.second(a.layout);
      FAIL_CHECK("no error");
    } catch (const error& e) {
      CHECK(std::string{e.what()}.rfind(std::string{size.first} + ": x", 0)
            == 0);
    }
  }
}

TEST_CASE("a CUDA device is unavailable in a build without its kernels") {
  for (const auto& op : all_operations) {
    refuses(op, errc::device_unavailable, "run.where",
            [](auto& a) { a.run.where = gpu; });
  }
}

#endif
