#include "trainer/plan/run_state.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <string_view>
#include <vector>

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

/// What must be the same, to be compared in this order, as "batch=64". Images
/// of another size are other data, too, and the size says more.
std::vector<std::string> identity_of(const run_state& x) {
  std::vector<std::string> result;
  for_each_identity(x, [&](const char* name, const auto& value) {
    if (std::string_view{name} != "data")
      result.push_back(fmt::format("{}={}", name, value));
  });
  // In the form that a joining process is told.
  result.push_back(fmt::format("data={:016x}", x.fingerprint));
  return result;
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
  // A fingerprint used to be of the training part alone.
  if (found.fingerprint == (expected.fingerprint & 0xffffffffU)
      && found.fingerprint != expected.fingerprint)
    throw failure{fmt::format(
        "{}: of an older version, which did not record the held-out images: "
        "expected data={:016x}, found data={:016x}",
        file, expected.fingerprint, found.fingerprint)};
  auto is = identity_of(found);
  auto wanted = identity_of(expected);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (is[i] != wanted[i])
      throw failure{fmt::format("{}: of another run: expected {}, found {}",
                                file, wanted[i], is[i])};
}

} // namespace syncnorm::train
