#pragma once

#include "syncnorm/caf_error.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// What a participant got: exactly one of value and error, counted.
template <class T>
struct outcome {
  std::optional<T> value;
  caf::error error;
  int count = 0;

  void operator()(T x) {
    value = std::move(x);
    ++count;
  }

  void operator()(const caf::error& x) {
    error = x;
    ++count;
  }

  [[nodiscard]] std::string text() const {
    return describe(error);
  }

  /// Whether this is exactly one error, with code `code` and a text that
  /// contains all `parts`.
  [[nodiscard]] bool failed(errc code,
                            const std::vector<std::string>& parts = {}) const {
    if (count != 1 || value || code_of(error) != code)
      return false;
    for (const auto& part : parts)
      if (text().find(part) == std::string::npos)
        return false;
    return true;
  }
};

/// Makes an outcome of what a blocking call returned.
template <class T>
outcome<T> outcome_of(caf::expected<T> result) {
  outcome<T> x;
  if (result)
    x(std::move(*result));
  else
    x(result.error());
  return x;
}

/// Why there is no value; empty if there is one. `describe` must not be called
/// then; but doctest, if told to, also prints messages of checks that hold.
template <class T>
std::string why_not(const caf::expected<T>& result) {
  return result ? std::string{} : describe(result.error());
}

} // namespace syncnorm::test
