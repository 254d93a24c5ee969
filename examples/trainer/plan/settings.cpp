#include "trainer/plan/settings.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace syncnorm::train {

namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 3> models{"mlp", "cnn", "resnet"};
constexpr std::array<std::string_view, 3> norms{"sync", "local", "frozen"};
constexpr std::array<std::string_view, 3> precisions{"f32", "f64", "bf16"};
constexpr std::array<std::string_view, 3> schedules{"constant", "cosine",
                                                    "step"};

template <class Kind>
Kind parse(std::string_view option,
           const std::array<std::string_view, 3>& names,
           const std::string& text) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == text)
      return static_cast<Kind>(i);
  throw failure{fmt::format("--{}: expected {}, found \"{}\"", option,
                            fmt::join(names, ", "), text)};
}

template <class Kind>
std::string name_of(const std::array<std::string_view, 3>& names, Kind kind) {
  return std::string{names.at(static_cast<std::size_t>(kind))};
}

void require(bool good, std::string_view option, std::string_view expected,
             double found) {
  if (!good)
    throw failure{
        fmt::format("--{}: expected {}, found {}", option, expected, found)};
}

} // namespace

void settings::validate() const {
  require(batch > 0, "batch", "1 or more", 0);
  require(epochs > 0, "epochs", "1 or more", 0);
  require(std::isfinite(rate) && rate >= 0, "lr", "0 or more", rate);
  require(momentum >= 0 && momentum < 1, "momentum", "from 0 to below 1",
          momentum);
  require(std::isfinite(weight_decay) && weight_decay >= 0, "weight-decay",
          "0 or more", weight_decay);
  if (resume && checkpoint.empty())
    throw failure{"--resume: expected --checkpoint=DIR, found none"};
  if (every > 0 && checkpoint.empty())
    throw failure{"--every: expected --checkpoint=DIR, found none"};
}

std::string to_string(model_kind kind) {
  return name_of(models, kind);
}

std::string to_string(norm_kind kind) {
  return name_of(norms, kind);
}

std::string to_string(precision_kind kind) {
  return name_of(precisions, kind);
}

std::string to_string(schedule_kind kind) {
  return name_of(schedules, kind);
}

model_kind parse_model(const std::string& text) {
  return parse<model_kind>("model", models, text);
}

norm_kind parse_norm(const std::string& text) {
  return parse<norm_kind>("norm", norms, text);
}

precision_kind parse_precision(const std::string& text) {
  return parse<precision_kind>("precision", precisions, text);
}

schedule_kind parse_schedule(const std::string& text) {
  return parse<schedule_kind>("schedule", schedules, text);
}

} // namespace syncnorm::train
