#include "trainer/plan/settings.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <string_view>

namespace syncnorm::train {

namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 3> models{"mlp", "cnn", "resnet"};
constexpr std::array<std::string_view, 3> norms{"sync", "local", "frozen"};
constexpr std::array<std::string_view, 3> precisions{"f32", "f64", "bf16"};
constexpr std::array<std::string_view, 3> schedules{"constant", "cosine",
                                                    "step"};
constexpr std::array<std::string_view, 2> failures{"stop", "continue"};

using name_list = std::span<const std::string_view>;

template <class Kind>
Kind parse(std::string_view option, name_list names, const std::string& text) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == text)
      return static_cast<Kind>(i);
  throw failure{fmt::format("--{}: expected {}, found \"{}\"", option,
                            fmt::join(names, ", "), text)};
}

template <class Kind>
std::string name_of(name_list names, Kind kind) {
  return std::string{names[static_cast<std::size_t>(kind)]};
}

void require(bool good, std::string_view option, std::string_view expected,
             double found) {
  if (!good)
    throw failure{
        fmt::format("--{}: expected {}, found {}", option, expected, found)};
}

} // namespace

std::chrono::nanoseconds settings::round_deadline() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>{deadline});
}

void settings::validate() const {
  validate_training();
  validate_processes();
  validate_tls();
  // A process that joins writes nothing.
  if (join.empty())
    validate_checkpoint();
}

void settings::validate_training() const {
  require(batch > 0, "batch", "1 or more", 0);
  // More are a typing error, and their steps overflow.
  require(epochs > 0 && epochs <= 1'000'000'000, "epochs", "1 to 1000000000",
          static_cast<double>(epochs));
  require(std::isfinite(rate) && rate >= 0, "lr", "a finite number, 0 or more",
          rate);
  require(momentum >= 0 && momentum < 1, "momentum", "from 0 to below 1",
          momentum);
  require(std::isfinite(weight_decay) && weight_decay >= 0, "weight-decay",
          "a finite number, 0 or more", weight_decay);
  // Anything longer than a day is a typing error, and overflows later.
  require(deadline >= 0.1 && deadline <= 86400, "deadline",
          "0.1 to 86400 seconds", deadline);
  require(patience >= 0 && patience <= 86400, "patience", "0 to 86400 seconds",
          patience);
  // No image has more pixels per side.
  require(shift <= 16384, "shift", "0 to 16384 pixels",
          static_cast<double>(shift));
}

void settings::validate_processes() const {
  if (!eval.empty() && (!serve.empty() || !join.empty()))
    throw failure{fmt::format("--eval, --{}: expected one of them, found both",
                              serve.empty() ? "join" : "serve")};
  if (!serve.empty() && !join.empty())
    throw failure{"--serve, --join: expected one of them, found both"};
  if (workers > 0 && serve.empty())
    throw failure{"--workers: expected --serve=HOST:PORT, found none"};
  if (!serve.empty() && workers == 0)
    throw failure{"--serve: expected --workers=N, 1 or more, found none"};
  require(fan_in >= 2, "fan-in", "2 or more", static_cast<double>(fan_in));
  // A message has less than 2 GB.
  require(chunk >= 1 && chunk <= 1 << 20, "chunk", "1 to 1048576 KiB",
          static_cast<double>(chunk));
}

void settings::validate_tls() const {
  auto files = {tls_certificate.empty(), tls_key.empty(), tls_ca.empty()};
  if (std::ranges::adjacent_find(files, std::not_equal_to<>{}) != files.end())
    throw failure{"--tls-certificate, --tls-key, --tls-ca: expected all three, "
                  "or none"};
  if (has_tls() && insecure)
    throw failure{"--insecure, --tls-certificate: expected one of them, found "
                  "both"};
}

void settings::validate_checkpoint() const {
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

std::string to_string(failure_kind kind) {
  return name_of(failures, kind);
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

failure_kind parse_failure(const std::string& text) {
  return parse<failure_kind>("on-failure", failures, text);
}

} // namespace syncnorm::train
