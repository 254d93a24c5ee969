#pragma once

#include "syncnorm/batch_norm_layer.hpp"
#include "syncnorm/replicate.hpp"
#include "tests/on_threads.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// What the tests of the layer share: an actor system, copies of a layer, and
// threads to run them side by side.

namespace syncnorm::test {

struct layer_config : caf::actor_system_config {
  layer_config() {
    detail::add_types<caf::id_block::syncnorm>(*this);
    load<caf::io::middleman>();
  }
};

inline bool init_layer_types() {
  detail::init_types<caf::id_block::syncnorm>();
  return true;
}

struct layer_fixture {
  bool types = init_layer_types();
  layer_config config;
  caf::actor_system system{config};
};

using layer_ptr = std::unique_ptr<batch_norm_layer>;
using layers = std::vector<layer_ptr>;

/// A layer and its clones, not yet replicated.
inline layers make_copies(caf::actor_system& system,
                          const batch_norm_options& options,
                          std::size_t count) {
  layers result;
  result.push_back(std::make_unique<batch_norm_layer>(system, options));
  while (result.size() < count)
    result.push_back(std::make_unique<batch_norm_layer>(result[0]->clone()));
  return result;
}

using testing::on_threads;
using testing::rethrow_first;

/// Like `on_threads`, but no call may throw.
inline void run_all(std::size_t count,
                    const std::function<void(std::size_t)>& f) {
  rethrow_first(on_threads(count, f));
}

/// Code and text of what a copy threw: `{none, ""}` if it threw nothing.
inline std::pair<errc, std::string> outcome(const std::exception_ptr& x) {
  if (!x)
    return {errc::none, ""};
  try {
    std::rethrow_exception(x);
  } catch (const error& e) {
    return {e.code(), e.what()};
  } catch (const std::exception& e) {
    return {errc::none, e.what()};
  }
}

/// Code and text of what `f` throws.
template <class F>
std::pair<errc, std::string> outcome_of(F f) {
  try {
    f();
  } catch (...) {
    return outcome(std::current_exception());
  }
  return {errc::none, ""};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The array called `name` as float64, empty if there is none.
inline std::vector<double> read(std::vector<named_array> arrays,
                                const std::string& name) {
  for (const auto& x : arrays)
    if (x.name == name)
      return std::visit(
          [](auto values) {
            return std::vector<double>(values.begin(), values.end());
          },
          x.values);
  return {};
}

/// Overwrites the array called `name`.
inline void write(std::vector<named_array> arrays, const std::string& name,
                  const std::vector<double>& values) {
  for (const auto& x : arrays)
    if (x.name == name)
      std::visit(
          [&]<class T>(std::span<T> to) {
            for (std::size_t i = 0; i < to.size(); ++i)
              to[i] = static_cast<T>(values[i]);
          },
          x.values);
}

} // namespace syncnorm::test
