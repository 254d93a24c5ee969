#include "trainer/model/archive.hpp"

#include "trainer/failure.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/output/seal.hpp"

#include <fmt/format.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
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

std::vector<torch::Tensor> tensors_of(const network& model) {
  auto result = model.parameters();
  auto buffers = model.buffers();
  result.insert(result.end(), buffers.begin(), buffers.end());
  return result;
}

/// What a model had before it was loaded, and has again with this object's end
/// unless it is kept as it is.
class former_tensors {
public:
  explicit former_tensors(const network& model) : tensors_{tensors_of(model)} {
    for (const auto& x : tensors_)
      former_.push_back(x.detach());
  }

  former_tensors(const former_tensors&) = delete;
  former_tensors& operator=(const former_tensors&) = delete;

  ~former_tensors() {
    for (std::size_t i = 0; i < former_.size(); ++i)
      tensors_[i].set_data(former_[i]);
  }

  [[nodiscard]] bool have_shapes_of(const network& model) const {
    auto others = tensors_of(model);
    return std::ranges::equal(
        former_, others,
        [](const auto& x, const auto& y) { return x.sizes() == y.sizes(); });
  }

  void forget() {
    former_.clear();
  }

private:
  std::vector<torch::Tensor> tensors_;
  std::vector<torch::Tensor> former_;
};

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
  former_tensors former{model};
  torch::Tensor read;
  try {
    model.load(archive);
    open_ours(archive, file).read("velocity", read);
  } catch (const c10::Error& x) {
    throw failure{fmt::format("{}: of another model: {}", file,
                              x.what_without_backtrace())};
  }
  if (!former.have_shapes_of(model) || read.sizes() != velocity.sizes()
      || read.scalar_type() != velocity.scalar_type())
    throw failure{fmt::format("{}: of another model: expected {} weights, "
                              "found {}, or other shapes",
                              file, velocity.numel(), read.numel())};
  velocity.copy_(read);
  former.forget();
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
