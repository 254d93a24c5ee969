// What every operation refuses, and memory that they may not share.

#include "tests/kernels/refusals.hpp"

using namespace syncnorm;
using namespace syncnorm::test;

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
  // Memory that the reduction does not have, but dx.
  auto output = [](auto& a) { return a.y.data(); };
  refuses(backward_op, errc::invalid_argument, "out.bias_grad",
          [&](auto& a) { a.sums.bias_grad = output(a); });
  refuses(backward_op, errc::invalid_argument, "out.sum_dy",
          [](auto& a) { a.sums.sum_dy = a.residual_grad; });
  refuses(backward_op, errc::invalid_argument, "scratch", [](auto& a) {
    a.y = {moved(a.scratch.data, 64), a.layout};
  });
  // Which the reduction alone does not read.
  arguments a;
  a.parameters.weight = a.residual_grad;
  a.sums.weight_grad = a.residual_grad;
  CHECK_NOTHROW(reduce_op.call(a));
  for (void* unread : {static_cast<void*>(nullptr), a.sums.sum_dy}) {
    a.sums.weight_grad = nullptr;
    a.parameters.inv_std = unread;
    CHECK_NOTHROW(reduce_op.call(a));
  }
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

TEST_CASE("every sample of a tensor is apart from what is written beside it") {
  // The second sample.
  refuses(normalize_op, errc::invalid_argument, "y",
          [](auto& a) { a.parameters.mean = moved(a.y.data(), 4 * 30); });
  // A single one, whose sample stride may be any number.
  auto single = [](tensor_layout& l) {
    l.shape.samples = 1;
    l.sample_stride = 1000;
  };
  refuses(normalize_op, errc::invalid_argument, "y", [&](auto& a) {
    a.y = changed(a.y, single);
    a.x = {moved(a.y.data(), 4), a.y.layout()};
  });
  arguments a;
  a.y = changed(a.y, single);
  a.x = changed(const_tensor_view{a.y},
                [](tensor_layout& l) { l.sample_stride = 30; });
  a.parameters.mean = moved(a.y.data(), 4 * 30);
  CHECK_NOTHROW(normalize_op.call(a));
}

TEST_CASE("memory that touches is apart") {
  for (auto to : {0, 1}) {
    arguments a;
    tensor both{{dtype::float32, {4, 5, 6}, {}, 30, {}}};
    auto at = [&](int half) {
      return tensor_view{moved(both.view().data(), half * 4 * 60), a.layout};
    };
    a.y = at(to);
    a.x = at(1 - to);
    CHECK_NOTHROW(normalize_op.call(a));
  }
}

TEST_CASE("a tensor without gaps may lie in another's") {
  for (auto in_output : {false, true}) {
    arguments a;
    tensor_layout apart{dtype::float32, {2, 5, 6}, {}, 100, {}};
    tensor memory{apart};
    auto inner = tensor_view{moved(memory.view().data(), 4 * 35), a.layout};
    a.x = in_output ? inner : memory.view();
    a.y = in_output ? memory.view() : inner;
    CHECK_NOTHROW(normalize_op.call(a));
  }
}

TEST_CASE("an empty batch lies over nothing") {
  auto none = [](tensor_layout& l) { l.shape.samples = 0; };
  arguments a;
  a.x = changed(const_tensor_view{moved(a.first, 4), a.layout}, none);
  a.dy = a.x;
  a.scratch = {a.first, 4096};
  CHECK_NOTHROW(reduce_op.call(a));
  arguments b;
  b.y = changed(tensor_view{moved(b.in, 4), b.layout}, none);
  b.x = b.y;
  b.dy = b.y;
  b.residual_grad = nullptr;
  CHECK_NOTHROW(normalize_op.call(b));
}

TEST_CASE("the gradient of an empty batch is empty") {
  auto none = [](tensor_layout& l) { l.shape.samples = 0; };
  for (const auto& op : {input_op, input_eval_op, backward_op}) {
    arguments a;
    a.x = changed(a.x, none);
    a.dy = changed(a.dy, none);
    a.y = changed(a.y, none);
    a.scratch = {};
    CHECK_NOTHROW(op.call(a));
    CHECK(a.y_memory.untouched());
    CHECK(a.residual_memory.untouched());
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
