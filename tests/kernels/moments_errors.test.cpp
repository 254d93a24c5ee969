#include "tests/kernels/refusals.hpp"

using namespace syncnorm;
using namespace syncnorm::test;

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
  for (auto with : {&const_moments_view::mean, &const_moments_view::m2})
    refuses(op, errc::invalid_argument, "parts[0]", [with](auto& a) {
      a.part.*with = with == &const_moments_view::mean ? a.first : a.second;
    });
  refuses(op, errc::dtype_mismatch, "out",
          [](auto& a) { a.part.type = a.moments.type = dtype::bfloat16; });
  refuses(op, errc::invalid_argument, "out.mean",
          [](auto& a) { a.moments.mean = nullptr; });
  refuses({"merge_moments",
           [](arguments& a) { merge_moments(a.run, {}, a.moments); }},
          errc::invalid_argument, "parts", [](auto&) {});
}

TEST_CASE("merge_moments takes as many values as can be counted, and parts of "
          "none wherever they lie") {
  arguments a;
  auto rest = a.part;
  rest.count = std::numeric_limits<std::int64_t>::max() - a.part.count;
  auto none = a.part;
  none.count = 0;
  none.mean = moved(a.first, 4);
  CHECK_NOTHROW(
      merge_moments(a.run, std::vector{a.part, none, rest}, a.moments));
  CHECK(a.moments.count == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("finalize_moments refuses options and arrays that do not do") {
  const auto& op = finalize_op;
  refuses(op, errc::invalid_argument, "total",
          [](auto& a) { a.part.count = -2; });
  refuses(op, errc::shape_mismatch, "total",
          [](auto& a) { a.part.channels = 0; });
  refuses(op, errc::device_mismatch, "total",
          [](auto& a) { a.part.where = gpu; });
  refuses(op, errc::dtype_mismatch, "total",
          [](auto& a) { a.part.type = dtype::float16; });
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
  for (auto with : {&running_view::mean, &running_view::var}) {
    const auto* name =
        with == &running_view::mean ? "running.mean" : "running.var";
    refuses(op, errc::invalid_argument, name, [with](auto& a) {
      a.part.mean = a.residual_grad;
      a.running.*with = moved(a.in, 4);
    });
    refuses(op, errc::invalid_argument, name, [with](auto& a) {
      a.part.m2 = a.residual_grad;
      a.running.*with = moved(a.in, 4);
    });
  }
  // Of no values nothing is read.
  arguments none;
  none.part.count = 0;
  none.part.mean = moved(none.first, 4);
  none.part.m2 = moved(none.in, 4);
  none.running.mean = none.in;
  CHECK_NOTHROW(op.call(none));
  none.part.mean = none.part.m2 = nullptr;
  CHECK_NOTHROW(op.call(none));
  // Each channel is read before it is written.
  arguments a;
  a.part.m2 = a.residual_grad;
  a.running = {a.in, a.residual_grad};
  CHECK_NOTHROW(op.call(a));
}

TEST_CASE("finalize_moments takes each momentum and eps on the edge") {
  for (auto momentum : {0.0, 1.0}) {
    arguments a;
    a.options = {.eps = 0, .momentum = momentum};
    CHECK_NOTHROW(finalize_op.call(a));
  }
}

TEST_CASE("running statistics that are halved name what is there") {
  auto text_of = [](const running_view& running) {
    arguments a;
    a.running = running;
    try {
      finalize_op.call(a);
    } catch (const error& e) {
      return std::string{e.what()};
    }
    return std::string{"nothing was thrown"};
  };
  float memory[arguments::count] = {};
  CHECK(text_of({memory, nullptr}).ends_with("got mean only"));
  CHECK(text_of({nullptr, memory}).ends_with("got var only"));
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
  // The last element that is written, and the first that is read.
  refuses(round_op, errc::invalid_argument, "out", [](auto& a) {
    a.first = a.scratch.data;
    a.scratch.data = moved(a.scratch.data, 16);
  });
}
