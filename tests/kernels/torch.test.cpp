// The kernels against libtorch's batch normalization, on tensors that libtorch
// made and handed over through DLPack.

#include <torch/torch.h>

// libtorch's logging defines it, and so does doctest.
#undef CHECK

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/dlpack.hpp"
#include "tests/kernels/tensor.hpp"
#include "tests/kernels/tolerance.hpp"

#include <ATen/DLConvertor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

using namespace syncnorm;

namespace {

/// One batch normalization, calculated by libtorch or by us.
struct results {
  at::Tensor y;
  at::Tensor dx;
  at::Tensor weight_grad;
  at::Tensor bias_grad;
  at::Tensor running_mean;
  at::Tensor running_var;
};

struct problem {
  at::Tensor x;
  at::Tensor dy;
  at::Tensor weight;
  at::Tensor bias;
  double eps = 1e-3;
  double momentum = 0.2;
};

/// A tensor of ours on the memory of one of libtorch's.
dlpack_tensor shared(const at::Tensor& tensor) {
  return dlpack_tensor{at::toDLPack(tensor)};
}

at::ScalarType torch_type(dtype type) {
  switch (type) {
  case dtype::float32:
    return at::kFloat;
  case dtype::float64:
    return at::kDouble;
  case dtype::float16:
    return at::kHalf;
  case dtype::bfloat16:
    return at::kBFloat16;
  }
  return at::kFloat;
}

at::ScalarType parameter_type(dtype type) {
  return torch_type(statistics_type(type));
}

/// Random tensors; x has mean 3 and deviation 2.
problem random_problem(dtype type, at::IntArrayRef sizes, bool channels_last) {
  torch::manual_seed(1);
  auto options = at::TensorOptions{}.dtype(at::kDouble);
  auto make = [&](double mean, double deviation) {
    auto result =
        (at::randn(sizes, options) * deviation + mean).to(torch_type(type));
    return channels_last ? result.contiguous(at::MemoryFormat::ChannelsLast)
                         : result.contiguous();
  };
  auto stored = parameter_type(type);
  return {make(3, 2), make(0, 1), at::randn({sizes[1]}, options).to(stored),
          at::randn({sizes[1]}, options).to(stored)};
}

/// Part of a graph of libtorch's. It calculates in float64: with the channels
/// last and few threads, its float32 is further from the truth than ours.
at::Tensor as_leaf(const at::Tensor& t) {
  return t.to(at::kDouble).detach().clone().requires_grad_();
}

/// The running statistics before the pass.
at::Tensor before(const problem& p, double value) {
  return at::full_like(p.weight, value, at::kDouble);
}

/// What libtorch gives.
results from_libtorch(const problem& p, bool train) {
  auto x = as_leaf(p.x), weight = as_leaf(p.weight), bias = as_leaf(p.bias);
  auto running_mean = before(p, 0.5);
  auto running_var = before(p, 1.5);
  auto y = at::batch_norm(x, weight, bias, running_mean, running_var, train,
                          p.momentum, p.eps, false);
  y.backward(p.dy.to(y.scalar_type()));
  return {y.detach(),  x.grad(),     weight.grad(),
          bias.grad(), running_mean, running_var};
}

/// Memory for a reduction on x.
workspace allocate(std::vector<std::byte>& memory, std::size_t bytes) {
  memory.resize(bytes + 16);
  auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return {memory.data() + (16 - address % 16), bytes};
}

/// What the kernels give.
results from_kernels(const problem& p, dtype type, bool train) {
  auto x = shared(p.x);
  auto dy = shared(p.dy);
  results out{at::empty_like(p.x),          at::empty_like(p.x),
              at::empty_like(p.weight),     at::empty_like(p.weight),
              at::full_like(p.weight, 0.5), at::full_like(p.weight, 1.5)};
  auto mean = at::empty_like(p.weight);
  auto inv_std = at::empty_like(p.weight);
  auto layout = x.view().layout();
  auto count = layout.shape.channels;
  std::vector<std::byte> memory;
  auto scratch = allocate(memory, batch_moments_workspace(layout));
  channel_parameters k{mean.data_ptr(), inv_std.data_ptr(), p.weight.data_ptr(),
                       p.bias.data_ptr()};
  running_statistics running{out.running_mean.data_ptr(),
                             out.running_var.data_ptr()};
  auto y = shared(out.y);
  auto dx = shared(out.dx);
  if (train) {
    moments_view moments{0,     mean.data_ptr(),       inv_std.data_ptr(),
                         count, statistics_type(type), {}};
    batch_moments({}, x.view(), moments, scratch);
    finalize_moments({}, moments, {.eps = p.eps, .momentum = p.momentum},
                     mean.data_ptr(), inv_std.data_ptr(),
                     {out.running_mean.data_ptr(), out.running_var.data_ptr()});
    normalize({}, x.view(), k, y.view());
  } else {
    mean.copy_(out.running_mean);
    inv_std.copy_((out.running_var + p.eps).rsqrt());
    normalize_eval({}, x.view(), running, p.eps, eps_mode::plus, k, y.view());
  }
  auto sum_dy = at::empty_like(p.weight);
  auto sum_dy_xmu = at::empty_like(p.weight);
  backward_reduce({}, dy.view(), x.view(), k, nullptr,
                  {sum_dy.data_ptr(), sum_dy_xmu.data_ptr(),
                   out.weight_grad.data_ptr(), out.bias_grad.data_ptr()},
                  scratch);
  if (train)
    backward_input(
        {}, dy.view(), x.view(), k,
        {sum_dy.data_ptr(), sum_dy_xmu.data_ptr(), layout.shape.per_channel()},
        nullptr, dx.view());
  else
    backward_input_eval({}, dy.view(), running, p.eps, eps_mode::plus, k,
                        nullptr, dx.view());
  return out;
}

/// What a copy of a layer has of one batch: its samples, and what it sends.
class copy_of_layer {
public:
  /// The samples [first, first + count) of x and dy, of y, residual and the
  /// gradients of both.
  copy_of_layer(std::array<at::Tensor, 6> tensors, std::int64_t first,
                std::int64_t count)
      : stored_{at::empty({4, tensors[0].size(1)},
                          parameter_type(shared(tensors[0]).view().type()))} {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      views_[i] = std::make_unique<dlpack_tensor>(
          shared(tensors[i].narrow(0, first, count)));
    mask_.resize(relu_mask_bytes(x().layout()) / 8);
    scratch_ =
        allocate(memory_, std::max(batch_moments_workspace(x().layout()),
                                   backward_reduce_workspace(x().layout())));
  }

  moments_view moments() {
    moments_view out{0, array(0), array(1), x().shape().channels, type(), {}};
    batch_moments({}, x(), out, scratch_);
    return out;
  }

  void forward(const channel_parameters& k) {
    fused_tail tail{view(3).data(), true, bits()};
    normalize({}, x(), k, view(2), tail);
  }

  /// Returns sum_dy and sum_dy_xmu, behind each other.
  const void* reduce(const channel_parameters& k) {
    backward_reduce({}, view(1), x(), k, bits(), {array(2), array(3)},
                    scratch_);
    return array(2);
  }

  void backward(const channel_parameters& k, const total_sums& sums) {
    backward_input({}, view(1), x(), k, sums, bits(), view(4), view(5).data());
  }

private:
  [[nodiscard]] const tensor_view& view(std::size_t i) const {
    return views_[i]->view();
  }
  [[nodiscard]] const tensor_view& x() const {
    return view(0);
  }
  [[nodiscard]] dtype type() const {
    return statistics_type(x().type());
  }
  [[nodiscard]] void* array(std::int64_t i) const {
    return stored_[i].data_ptr();
  }
  std::uint8_t* bits() {
    return reinterpret_cast<std::uint8_t*>(mask_.data());
  }

  at::Tensor stored_;
  std::array<std::unique_ptr<dlpack_tensor>, 6> views_;
  std::vector<std::uint64_t> mask_;
  std::vector<std::byte> memory_;
  workspace scratch_;
};

/// A batch on three copies, one of them empty: with a residual and ReLU.
struct fused_results {
  results all;
  at::Tensor residual_grad;
};

fused_results from_copies(const problem& p, const at::Tensor& residual,
                          dtype type) {
  fused_results out{{at::empty_like(p.x),
                     at::empty_like(p.x),
                     {},
                     {},
                     at::full_like(p.weight, 0.5),
                     at::full_like(p.weight, 1.5)},
                    at::empty_like(p.x)};
  std::array tensors{p.x,      p.dy,       out.all.y,
                     residual, out.all.dx, out.residual_grad};
  auto samples = p.x.size(0);
  std::array copies{copy_of_layer{tensors, 0, 1}, copy_of_layer{tensors, 1, 0},
                    copy_of_layer{tensors, 1, samples - 1}};
  auto constants = at::empty({4, p.x.size(1)}, p.weight.options());
  auto array = [&](std::int64_t i) { return constants[i].data_ptr(); };
  std::vector<const_moments_view> parts;
  for (auto& copy : copies)
    parts.emplace_back(copy.moments());
  moments_view total{0, array(0), array(1), p.x.size(1), parts[0].type, {}};
  merge_moments({}, parts, total);
  finalize_moments(
      {}, total, {.eps = p.eps, .momentum = p.momentum}, array(0), array(1),
      {out.all.running_mean.data_ptr(), out.all.running_var.data_ptr()});
  channel_parameters k{array(0), array(1), p.weight.data_ptr(),
                       p.bias.data_ptr()};
  std::vector<const void*> sums;
  for (auto& copy : copies) {
    copy.forward(k);
    sums.push_back(copy.reduce(k));
  }
  add_arrays({}, sums, 2 * p.x.size(1), statistics_type(type), array(2));
  for (auto& copy : copies)
    copy.backward(k, {array(2), array(3), total.count});
  out.all.bias_grad = constants[2];
  out.all.weight_grad = constants[3] * constants[1];
  return out;
}

/// The same by libtorch. Whether an element passed ReLU is told: near 0 both
/// may be right.
fused_results fused_by_libtorch(const problem& p, const at::Tensor& residual,
                                const at::Tensor& passed) {
  auto x = as_leaf(p.x), r = as_leaf(residual);
  auto weight = as_leaf(p.weight), bias = as_leaf(p.bias);
  auto running_mean = before(p, 0.5);
  auto running_var = before(p, 1.5);
  auto sum = at::batch_norm(x, weight, bias, running_mean, running_var, true,
                            p.momentum, p.eps, false)
             + r;
  sum.backward(p.dy.to(sum.scalar_type()) * passed);
  return {{at::relu(sum).detach(), x.grad(), weight.grad(), bias.grad(),
           running_mean, running_var},
          r.grad()};
}

/// The greatest |a - b|, relative to `scale`.
double distance(const at::Tensor& a, const at::Tensor& b,
                const at::Tensor& scale) {
  auto difference = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
  return (difference / (scale.to(at::kDouble) + 1e-30)).max().item<double>();
}

/// Sum over all dimensions but the channels.
at::Tensor over_channels(const at::Tensor& x) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < x.dim(); ++i)
    dimensions.push_back(i);
  return x.sum(dimensions);
}

/// @param residual  what was added to y; undefined: nothing.
void compare(const problem& p, dtype type, const results& want,
             const results& got, const at::Tensor& residual = {}) {
  auto elements = tolerance::of("libtorch: elements", type);
  auto statistics = tolerance::of("libtorch: statistics", type);
  auto dy = p.dy.to(at::kDouble).abs();
  auto xhat = (p.x.to(at::kDouble) - 3).abs() / 2;
  // Of the order of what each value is made of; x and dy are random numbers of
  // known deviations.
  auto spread =
      want.y.to(at::kDouble).abs().mean() + want.y.abs().to(at::kDouble);
  if (residual.defined())
    spread = spread + residual.abs().to(at::kDouble);
  auto slope =
      want.dx.to(at::kDouble).abs().mean() + want.dx.abs().to(at::kDouble);
  CHECK(distance(got.y, want.y, spread) < elements);
  CHECK(distance(got.dx, want.dx, slope) < elements);
  CHECK(distance(got.bias_grad, want.bias_grad, over_channels(dy))
        < statistics);
  CHECK(distance(got.weight_grad, want.weight_grad,
                 over_channels(dy * (xhat + 2)))
        < statistics);
  CHECK(
      distance(got.running_mean, want.running_mean, want.running_mean.abs() + 1)
      < statistics);
  CHECK(distance(got.running_var, want.running_var, want.running_var.abs())
        < statistics);
}

void compare(const problem& p, dtype type, bool train) {
  compare(p, type, from_libtorch(p, train), from_kernels(p, type, train));
}

std::string describe(dtype type, at::IntArrayRef sizes, bool channels_last) {
  auto result = to_string(type);
  for (auto size : sizes)
    result.append(" ").append(std::to_string(size));
  return result.append(channels_last ? ", channels last" : "");
}

const std::vector<std::vector<std::int64_t>> all_sizes{
    {5, 7},         {64, 130},       {3, 5, 11},      {2, 3, 4, 5},
    {8, 64, 13, 7}, {16, 4, 56, 56}, {2, 33, 23, 23}, {3, 5, 3, 4, 5}};

template <class Body>
void for_each_problem(const Body& body) {
  for (auto type :
       {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16})
    for (const auto& sizes : all_sizes)
      for (auto channels_last : {false, true}) {
        if (channels_last && sizes.size() != 4)
          continue;
        INFO(describe(type, sizes, channels_last));
        body(random_problem(type, sizes, channels_last), type);
      }
}

} // namespace

TEST_CASE("training gives what libtorch's batch_norm gives") {
  for_each_problem(
      [](const problem& p, dtype type) { compare(p, type, true); });
}

TEST_CASE("evaluation gives what libtorch's batch_norm gives") {
  for_each_problem(
      [](const problem& p, dtype type) { compare(p, type, false); });
}

TEST_CASE("copies with residual and ReLU give what libtorch gives for all") {
  for_each_problem([](const problem& p, dtype type) {
    auto residual = at::randn_like(p.x);
    auto got = from_copies(p, residual, type);
    auto passed = (got.all.y > 0).to(at::kDouble);
    auto want = fused_by_libtorch(p, residual, passed);
    compare(p, type, want.all, got.all, residual);
    CHECK(at::equal(got.residual_grad.to(at::kDouble), want.residual_grad));
  });
}

TEST_CASE("libtorch's tensors come over DLPack without a copy") {
  auto x = at::randn({2, 3, 4, 5});
  CHECK(shared(x).view().data() == x.data_ptr());
  CHECK(shared(x).view().format() == memory_format::channels_first);
  auto last = x.contiguous(at::MemoryFormat::ChannelsLast);
  CHECK(shared(last).view().format() == memory_format::channels_last);
  auto every_other = at::randn({4, 3, 4, 5}).slice(0, 0, 4, 2);
  CHECK(shared(every_other).view().sample_stride() == 120);
  auto back =
      at::fromDLPack(to_dlpack(shared(last).view(), nullptr, x.sizes().vec()));
  CHECK(back.is_contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(at::equal(back, last));
}
