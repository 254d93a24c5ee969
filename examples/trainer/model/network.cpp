#include "trainer/model/network.hpp"

#include "trainer/failure.hpp"
#include "trainer/plan/epoch_order.hpp"

#include <fmt/format.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cmath>

namespace syncnorm::train {

namespace {

using torch::Tensor;

torch::nn::Conv2d convolution(std::size_t from, std::size_t to,
                              std::int64_t stride, std::int64_t kernel = 3) {
  return torch::nn::Conv2d{
      torch::nn::Conv2dOptions(static_cast<std::int64_t>(from),
                               static_cast<std::int64_t>(to), kernel)
          .stride(stride)
          .padding(kernel / 2)
          .bias(false)};
}

/// A batch-norm layer that is a child of `parent` under `name`.
torch::nn::AnyModule child(torch::nn::Module& parent, const std::string& name,
                           torch::nn::AnyModule norm) {
  parent.register_module(name, norm.ptr());
  return norm;
}

constexpr std::int64_t classes = dataset::classes;

class mlp final : public network {
public:
  mlp(const norm_factory& norms, image_shape shape)
      : norm1_{child(*this, "norm1", norms.norm1d(128))},
        norm2_{child(*this, "norm2", norms.norm1d(64))} {
    auto inputs = static_cast<std::int64_t>(shape.size());
    hidden1_ = register_module("hidden1", linear(inputs, 128));
    hidden2_ = register_module("hidden2", linear(128, 64));
    output_ = register_module("output", torch::nn::Linear{64, classes});
  }

  Tensor forward(Tensor images) override {
    auto x = hidden1_->forward(images.flatten(1));
    x = norm1_.forward(x).relu();
    x = norm2_.forward(hidden2_->forward(x)).relu();
    return output_->forward(x);
  }

private:
  static torch::nn::Linear linear(std::int64_t from, std::int64_t to) {
    return torch::nn::Linear{torch::nn::LinearOptions(from, to).bias(false)};
  }

  torch::nn::AnyModule norm1_;
  torch::nn::AnyModule norm2_;
  torch::nn::Linear hidden1_ = nullptr;
  torch::nn::Linear hidden2_ = nullptr;
  torch::nn::Linear output_ = nullptr;
};

class cnn final : public network {
public:
  cnn(const norm_factory& norms, image_shape shape)
      : norm1_{child(*this, "norm1", norms.norm2d(16))},
        norm2_{child(*this, "norm2", norms.norm2d(32))},
        norm3_{child(*this, "norm3", norms.norm2d(64))} {
    conv1_ = register_module("conv1", convolution(shape.channels, 16, 1));
    conv2_ = register_module("conv2", convolution(16, 32, 1));
    conv3_ = register_module("conv3", convolution(32, 64, 1));
    output_ = register_module("output", torch::nn::Linear{4 * 64, classes});
  }

  Tensor forward(Tensor images) override {
    auto x = norm1_.forward(conv1_->forward(images)).relu();
    x = norm2_.forward(conv2_->forward(x)).relu();
    x = torch::max_pool2d(x, 2);
    x = norm3_.forward(conv3_->forward(x)).relu();
    x = torch::max_pool2d(x, 2);
    return output_->forward(torch::adaptive_avg_pool2d(x, {2, 2}).flatten(1));
  }

private:
  torch::nn::AnyModule norm1_;
  torch::nn::AnyModule norm2_;
  torch::nn::AnyModule norm3_;
  torch::nn::Conv2d conv1_ = nullptr;
  torch::nn::Conv2d conv2_ = nullptr;
  torch::nn::Conv2d conv3_ = nullptr;
  torch::nn::Linear output_ = nullptr;
};

/// Two convolutions and what they are added to: the input itself, or its
/// projection where the shape changes.
/// Source: He et al., "Deep residual learning for image recognition", 2015.
class residual_block final : public torch::nn::Module {
public:
  residual_block(const norm_factory& norms, std::size_t from, std::size_t to,
                 std::int64_t stride)
      : norm1_{child(*this, "norm1",
                     norms.norm2d(static_cast<std::int64_t>(to)))},
        norm2_{child(*this, "norm2",
                     norms.norm2d(static_cast<std::int64_t>(to)))} {
    conv1_ = register_module("conv1", convolution(from, to, stride));
    conv2_ = register_module("conv2", convolution(to, to, 1));
    if (from != to || stride != 1) {
      projection_ =
          register_module("projection", convolution(from, to, stride, 1));
      projection_norm_ = child(*this, "projection_norm",
                               norms.norm2d(static_cast<std::int64_t>(to)));
    }
  }

  Tensor forward(const Tensor& input) {
    auto x = norm1_.forward(conv1_->forward(input)).relu();
    x = norm2_.forward(conv2_->forward(x));
    if (projection_)
      return (x + projection_norm_.forward(projection_->forward(input))).relu();
    return (x + input).relu();
  }

private:
  torch::nn::AnyModule norm1_;
  torch::nn::AnyModule norm2_;
  torch::nn::AnyModule projection_norm_;
  torch::nn::Conv2d conv1_ = nullptr;
  torch::nn::Conv2d conv2_ = nullptr;
  torch::nn::Conv2d projection_ = nullptr;
};

class resnet final : public network {
public:
  resnet(const norm_factory& norms, image_shape shape)
      : norm1_{child(*this, "norm1", norms.norm2d(16))} {
    conv1_ = register_module("conv1", convolution(shape.channels, 16, 1));
    block1_ = block("block1", norms, 16, 16, 1);
    block2_ = block("block2", norms, 16, 32, 2);
    block3_ = block("block3", norms, 32, 64, 2);
    output_ = register_module("output", torch::nn::Linear{64, classes});
  }

  Tensor forward(Tensor images) override {
    auto x = norm1_.forward(conv1_->forward(images)).relu();
    x = block3_->forward(block2_->forward(block1_->forward(x)));
    return output_->forward(x.mean({2, 3}));
  }

private:
  std::shared_ptr<residual_block> block(const std::string& name,
                                        const norm_factory& norms,
                                        std::size_t from, std::size_t to,
                                        std::int64_t stride) {
    return register_module(
        name, std::make_shared<residual_block>(norms, from, to, stride));
  }

  torch::nn::AnyModule norm1_;
  torch::nn::Conv2d conv1_ = nullptr;
  std::shared_ptr<residual_block> block1_;
  std::shared_ptr<residual_block> block2_;
  std::shared_ptr<residual_block> block3_;
  torch::nn::Linear output_ = nullptr;
};

} // namespace

network_ptr make_network(model_kind model, norm_kind norm, image_shape shape) {
  norm_factory norms{norm};
  if (model == model_kind::mlp)
    return std::make_shared<mlp>(norms, shape);
  if (shape.height < 4 || shape.width < 4)
    throw failure{fmt::format("--model={}: expected images of 4 x 4 or more, "
                              "found {} x {}",
                              to_string(model), shape.height, shape.width)};
  if (model == model_kind::cnn)
    return std::make_shared<cnn>(norms, shape);
  return std::make_shared<resnet>(norms, shape);
}

void initialize(network& model, std::uint64_t seed) {
  torch::NoGradGuard no_grad;
  std::uint64_t position = 0;
  for (auto& item : model.named_parameters()) {
    auto& weight = item.value();
    // Streams 0, 1, ... belong to the epochs.
    random_stream random{seed, ~position++};
    if (weight.dim() < 2) {
      weight.fill_(item.key().ends_with("weight") ? 1.0 : 0.0);
      continue;
    }
    auto inputs = static_cast<double>(weight.numel() / weight.size(0));
    auto bound = std::sqrt(6.0 / inputs);
    auto values = torch::empty(weight.sizes(), torch::kFloat64);
    auto* data = values.data_ptr<double>();
    for (std::int64_t i = 0; i < values.numel(); ++i)
      data[i] = bound * (2 * random.uniform() - 1);
    weight.copy_(values);
  }
}

torch::ScalarType weight_type(precision_kind precision) {
  return precision == precision_kind::f64 ? torch::kFloat64 : torch::kFloat32;
}

void move_model(network& model, const torch::Device& where,
                torch::ScalarType type) {
  torch::NoGradGuard no_grad;
  auto move_one = [&](Tensor& x) {
    x.set_data(x.is_floating_point() ? x.to(where, type) : x.to(where));
  };
  for (auto& x : model.parameters())
    move_one(x);
  for (auto& x : model.buffers())
    move_one(x);
}

} // namespace syncnorm::train
