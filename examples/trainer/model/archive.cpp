#include "trainer/model/archive.hpp"

#include "trainer/failure.hpp"
#include "trainer/model/network.hpp"
#include "trainer/model/rows.hpp"
#include "trainer/model/snapshot.hpp"
#include "trainer/output/seal.hpp"

#include <fmt/format.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <sstream>
#include <utility>

namespace syncnorm::train {

namespace {

torch::serialize::InputArchive open(const std::string& content,
                                    const std::string& file) {
  check_seal(content, file);
  torch::serialize::InputArchive archive;
  try {
    // Also loads what was written from a GPU.
    archive.load_from(content.data(), content.size(), torch::kCPU);
  } catch (const c10::Error& x) {
    throw failure{fmt::format("{}: {}", file, x.what_without_backtrace())};
  }
  return archive;
}

torch::serialize::InputArchive open_ours(torch::serialize::InputArchive& whole,
                                         const std::string& file) {
  torch::serialize::InputArchive ours;
  if (!whole.try_read("syncnorm", ours))
    throw failure{
        fmt::format("{}: expected an entry \"syncnorm\", found none", file)};
  return ours;
}

bool read_tensors(const torch::OrderedDict<std::string, torch::Tensor>& named,
                  bool are_buffers, torch::serialize::InputArchive& archive) {
  for (const auto& place : named) {
    torch::Tensor read;
    archive.read(place.key(), read, are_buffers);
    auto x = place.value().detach();
    if (read.sizes() != x.sizes() || read.scalar_type() != x.scalar_type())
      return false;
    x.copy_(read);
  }
  return true;
}

/// Like `module.load(archive)`, which however would read a tensor of another
/// type as one of the model's, and beyond its end.
/// @returns whether all have the model's types and shapes.
bool read_module(const torch::nn::Module& module,
                 torch::serialize::InputArchive& archive) {
  if (!read_tensors(module.named_parameters(false), false, archive)
      || !read_tensors(module.named_buffers(false), true, archive))
    return false;
  for (const auto& child : module.named_children()) {
    torch::serialize::InputArchive part;
    archive.read(child.key(), part);
    if (!read_module(*child.value(), part))
      return false;
  }
  return true;
}

/// On the CPU, in the type of the options.
network_ptr empty_network(const settings& options, image_shape shape) {
  auto model = make_network(options.model, options.norm, shape);
  move_model(*model, torch::kCPU, weight_type(options.precision));
  return model;
}

/// Zeros, for the weights of `model`.
torch::Tensor velocity_of(const network& model) {
  auto weights = model.parameters();
  return torch::zeros({count_values(weights)}, weights.at(0).scalar_type());
}

} // namespace

std::string pack(const model_state& state, const std::string& run,
                 const settings& options, image_shape shape) {
  auto model = empty_network(options, shape);
  auto velocity = velocity_of(*model);
  restore(state, *model, velocity);
  torch::serialize::OutputArchive archive;
  model->save(archive);
  torch::serialize::OutputArchive ours{archive.compilation_unit()};
  ours.write("velocity", velocity);
  ours.write("state", c10::IValue{run});
  archive.write("syncnorm", ours);
  std::ostringstream out;
  archive.save_to(out);
  auto content = std::move(out).str();
  seal(content);
  return content;
}

model_state unpack(const std::string& content, const std::string& file,
                   const settings& options, image_shape shape) {
  auto archive = open(content, file);
  auto model = empty_network(options, shape);
  auto velocity = velocity_of(*model);
  torch::Tensor read;
  auto fits = false;
  try {
    fits = read_module(*model, archive);
    open_ours(archive, file).read("velocity", read);
    fits = fits && read.sizes() == velocity.sizes()
           && read.scalar_type() == velocity.scalar_type();
    if (fits)
      velocity.copy_(read);
  } catch (const c10::Error& x) {
    throw failure{fmt::format("{}: of another model: {}", file,
                              x.what_without_backtrace())};
  }
  if (!fits)
    throw failure{fmt::format("{}: of another model: expected {} weights, "
                              "found {}, or other shapes",
                              file, velocity.numel(), read.numel())};
  return snapshot_of(*model, velocity);
}

std::string unpack_run(const std::string& content, const std::string& file) {
  auto archive = open(content, file);
  c10::IValue state;
  try {
    open_ours(archive, file).read("state", state);
  } catch (const c10::Error& x) {
    throw failure{fmt::format("{}: {}", file, x.what_without_backtrace())};
  }
  return state.toStringRef();
}

} // namespace syncnorm::train
