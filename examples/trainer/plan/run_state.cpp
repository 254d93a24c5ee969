#include "trainer/plan/run_state.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace syncnorm::train {

namespace {

/// Calls `f(name, value)` for what must be the same in two parts of one run.
template <class State, class F>
void for_each_identity(State& x, F f) {
  f("model", x.model);
  f("norm", x.norm);
  f("precision", x.precision);
  f("batch", x.batch);
  f("seed", x.seed);
  f("data", x.fingerprint);
  f("channels", x.channels);
  f("height", x.height);
  f("width", x.width);
}

template <class State, class F>
void for_each_field(State& x, F f) {
  for_each_identity(x, f);
  f("epoch", x.epoch);
  f("position", x.position);
  f("step", x.step);
  f("loss", x.loss);
  f("seconds", x.seconds);
  f("waiting", x.waiting);
}

bool read(std::string_view text, std::string& x) {
  x = text;
  return true;
}

template <class Number>
bool read(std::string_view text, Number& x) {
  const auto* end = text.data() + text.size();
  auto [rest, code] = std::from_chars(text.data(), end, x);
  return code == std::errc{} && rest == end;
}

} // namespace

run_state initial_state(const settings& options, const dataset& data) {
  run_state state;
  state.model = to_string(options.model);
  state.norm = to_string(options.norm);
  state.precision = to_string(options.precision);
  state.batch = options.batch;
  state.seed = options.seed;
  state.fingerprint = data.fingerprint;
  state.channels = data.training.shape.channels;
  state.height = data.training.shape.height;
  state.width = data.training.shape.width;
  return state;
}

std::string to_text(const run_state& state) {
  std::string text;
  for_each_field(state, [&](const char* name, const auto& value) {
    text += fmt::format("{}={}\n", name, value);
  });
  return text;
}

run_state parse_state(const std::string& text, const std::string& file) {
  run_state state;
  auto rest = std::string_view{text};
  for_each_field(state, [&](const char* name, auto& value) {
    auto line = rest.substr(0, rest.find('\n'));
    auto start = fmt::format("{}=", name);
    if (!line.starts_with(start) || !read(line.substr(start.size()), value))
      throw failure{fmt::format("{}: expected \"{}\" and a value, found \"{}\"",
                                file, start, line)};
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  });
  return state;
}

void require_same_run(const run_state& found, const run_state& expected,
                      const std::string& file) {
  // As a fingerprint was of the training part alone.
  if (found.fingerprint == (expected.fingerprint & 0xffffffffU)
      && found.fingerprint != expected.fingerprint)
    throw failure{fmt::format(
        "{}: of an older version, which did not record the held-out images: "
        "expected data={}, found data={}",
        file, expected.fingerprint, found.fingerprint)};
  // Walks both at once: one as text, in the same order.
  auto rest = to_text(found);
  for_each_identity(expected, [&](const char* name, const auto& value) {
    auto line = rest.substr(0, rest.find('\n'));
    if (line != fmt::format("{}={}", name, value))
      throw failure{fmt::format("{}: of another run: expected {}={}, found {}",
                                file, name, value, line)};
    rest.erase(0, line.size() + 1);
  });
}

} // namespace syncnorm::train
