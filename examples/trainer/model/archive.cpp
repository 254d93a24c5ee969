#include "trainer/model/archive.hpp"

#include "trainer/failure.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/output/seal.hpp"

#include <fmt/format.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <sstream>
#include <vector>

namespace syncnorm::train {

namespace {

torch::serialize::InputArchive open(const std::string& content,
                                    const std::string& file) {
  check_seal(content, file);
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(content.data(), content.size());
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

std::vector<std::vector<std::int64_t>> shapes_of(const network& model) {
  std::vector<std::vector<std::int64_t>> result;
  for (const auto& x : model.parameters())
    result.push_back(x.sizes().vec());
  for (const auto& x : model.buffers())
    result.push_back(x.sizes().vec());
  return result;
}

} // namespace

std::string pack(const network& model, const torch::Tensor& velocity,
                 const std::string& state) {
  torch::serialize::OutputArchive archive;
  model.save(archive);
  torch::serialize::OutputArchive ours{archive.compilation_unit()};
  ours.write("velocity", velocity);
  ours.write("state", c10::IValue{state});
  archive.write("syncnorm", ours);
  std::ostringstream out;
  archive.save_to(out);
  auto content = std::move(out).str();
  seal(content);
  return content;
}

void unpack(const std::string& content, const std::string& file, network& model,
            torch::Tensor& velocity) {
  auto archive = open(content, file);
  auto shapes = shapes_of(model);
  torch::Tensor read;
  try {
    model.load(archive);
    open_ours(archive, file).read("velocity", read);
  } catch (const c10::Error& x) {
    throw failure{fmt::format("{}: of another model: {}", file,
                              x.what_without_backtrace())};
  }
  if (shapes != shapes_of(model) || read.sizes() != velocity.sizes()
      || read.scalar_type() != velocity.scalar_type())
    throw failure{fmt::format("{}: of another model: expected {} weights, "
                              "found {}, or other shapes",
                              file, velocity.numel(), read.numel())};
  velocity.copy_(read);
}

std::string read_state(const std::string& content, const std::string& file) {
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
