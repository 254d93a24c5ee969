#include "trainer/plan/run_identity.hpp"

#include "syncnorm/compat.hpp"

#include <fmt/format.h>

namespace syncnorm::train {

namespace {

/// Cuts the first line off.
std::string_view next_line(std::string_view& text) {
  auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

/// Text from another process is shown up to this length.
std::string_view shown(std::string_view line) {
  return line.empty() ? "nothing" : line.substr(0, 80);
}

} // namespace

std::string run_identity(const settings& options, const dataset& data,
                         std::uint64_t model) {
  std::string text;
  auto add = [&text](std::string_view name, const auto& value) {
    text += fmt::format("{}={}\n", name, value);
  };
  const auto& shape = data.training.shape;
  add("syncnorm", SYNCNORM_TRAIN_VERSION);
  add("caf", syncnorm::compat::caf_line);
  add("model", to_string(options.model));
  add("norm", to_string(options.norm));
  add("precision", to_string(options.precision));
  add("fingerprint of the model", fmt::format("{:016x}", model));
  add("data",
      fmt::format("{} + {} images of {} x {} x {}, {:016x}",
                  data.training.size(), data.held_out.size(), shape.channels,
                  shape.height, shape.width, data.fingerprint));
  add("batch", options.batch);
  add("epochs", options.epochs);
  add("lr", options.rate);
  add("momentum", options.momentum);
  add("weight-decay", options.weight_decay);
  add("schedule", to_string(options.schedule));
  add("seed", options.seed);
  add("shift", options.shift);
  add("chunk", options.chunk);
  return text;
}

std::optional<std::string> difference_of(std::string_view expected,
                                         std::string_view found) {
  std::string result;
  while (!expected.empty() || !found.empty()) {
    auto x = next_line(expected);
    auto y = next_line(found);
    if (x == y)
      continue;
    result += fmt::format("{}expected {}, found {}", result.empty() ? "" : "; ",
                          shown(x), shown(y));
    // Lines of something else altogether.
    if (x.empty() || x.substr(0, x.find('=')) != y.substr(0, y.find('=')))
      break;
  }
  if (result.empty())
    return std::nullopt;
  return result;
}

} // namespace syncnorm::train
