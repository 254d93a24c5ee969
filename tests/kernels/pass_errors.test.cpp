#include "tests/kernels/refusals.hpp"

using namespace syncnorm;
using namespace syncnorm::test;

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

TEST_CASE("tensors of as many elements in another shape are refused") {
  refuses(normalize_op, errc::shape_mismatch, "y", [](auto& a) {
    a.y = changed(a.y, [](auto& l) { l.shape = {2, 6, 5}; });
  });
}

TEST_CASE("a bias that is not aligned is refused by the forward pass") {
  refuses({"batch_norm_forward",
           [](arguments& a) {
             batch_norm_forward(a.run, a.x, a.options, {a.first, a.second, {}},
                                a.in, moved(a.in, 2), a.y, a.tail, a.scratch);
           }},
          errc::invalid_argument, "bias", [](auto&) {});
}
