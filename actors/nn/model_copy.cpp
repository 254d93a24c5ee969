#include "actors/nn/model_copy.hpp"

#include "syncnorm/error.hpp"

#include <algorithm>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/container/sequential.h>

#include <string>
#include <typeinfo>
#include <vector>

namespace syncnorm::nn::detail {

namespace {

using torch::nn::Module;

std::string type_of(const Module* x) {
  return x == nullptr ? "null" : c10::demangle(typeid(*x).name());
}

[[noreturn]] void refuse(const std::string& path, const std::string& expected,
                         const std::string& got) {
  throw error{errc::invalid_argument,
              fmt::format("replica_set: model: {}expected clone() to make {}, "
                          "got {}",
                          path.empty() ? "" : path + ": ", expected, got)};
}

void require_names(const std::string& path, const char* what,
                   std::vector<std::string> expected,
                   std::vector<std::string> got) {
  std::ranges::sort(expected);
  std::ranges::sort(got);
  if (expected != got)
    refuse(path, fmt::format("the {} {}", what, expected),
           fmt::format("{}", got));
}

/// The copy's children are in the model's order.
void adopt_names(const Module& model, Module& copy) {
  auto children = copy.named_children();
  auto names = model.named_children().keys();
  if (dynamic_cast<torch::nn::SequentialImpl*>(&copy) == nullptr
      || children.size() != names.size() || children.keys() == names)
    return;
  for (const auto& child : children)
    copy.unregister_module(child.key());
  for (std::size_t i = 0; i < names.size(); ++i)
    copy.register_module(names[i], children[i].value());
}

void complete(const Module& model, Module* copy, const std::string& path) {
  if (copy == nullptr || typeid(model) != typeid(*copy))
    refuse(path, "a " + type_of(&model), type_of(copy));
  adopt_names(model, *copy);
  auto parts = copy->named_children();
  require_names(path, "children", model.named_children().keys(), parts.keys());
  require_names(path, "parameters", model.named_parameters(false).keys(),
                copy->named_parameters(false).keys());
  require_names(path, "buffers", model.named_buffers(false).keys(),
                copy->named_buffers(false).keys());
  for (const auto& child : model.named_children())
    complete(*child.value(), parts[child.key()].get(),
             path.empty() ? child.key() : path + '.' + child.key());
}

} // namespace

void complete_copy(const Module& model, Module* copy) {
  complete(model, copy, "");
}

} // namespace syncnorm::nn::detail
