#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/error.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace syncnorm {

/// Returns the error of that code with a text that names what was wrong, what
/// was expected and where.
[[nodiscard]] caf::error make_error(errc code, std::string text);

/// For the edge of a handler: turns what a kernel or constructor threw into
/// what an actor answers.
[[nodiscard]] caf::error to_caf_error(const error& x);

/// Returns this library's code of `x`, or nothing if `x` is no error or one of
/// CAF's own.
[[nodiscard]] std::optional<errc> code_of(const caf::error& x);

/// Returns the text of `x` for a person: `"deadline_exceeded: layer bn2, round
/// 17: waited 30 s for replica 3; have replicas 0, 1, 2"`. For errors of CAF's
/// own, what CAF prints; for an exit reason, only its name, such as `kill`.
[[nodiscard]] std::string describe(const caf::error& x);

/// Returns the text of `x` without its code; for errors of CAF's own, as
/// `describe`.
[[nodiscard]] std::string text_of(const caf::error& x);

namespace detail {

/// Used instead of an identifier where there is none or it is not known.
inline constexpr std::int64_t no_replica = -1;

/// Returns how a text about that replica begins: `"replica 3: "`, or empty.
[[nodiscard]] inline std::string replica_prefix(std::int64_t identifier) {
  return identifier == no_replica
             ? ""
             : "replica " + std::to_string(identifier) + ": ";
}

} // namespace detail

} // namespace syncnorm

SYNCNORM_ERROR_CODE_ENUM(syncnorm::errc, "syncnorm")
