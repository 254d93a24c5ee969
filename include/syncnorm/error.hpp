#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace syncnorm {

/// Why an operation of this library failed. Kernels and constructors throw
/// `syncnorm::error` with such a code; actors answer a `caf::error` with the
/// same one. A value is never given a second meaning.
enum class errc : std::uint8_t {
  /// No error.
  none = 0,

  // -- arguments --------------------------------------------------------------

  /// A value that the function does not accept.
  invalid_argument = 1,
  /// Shapes, channel counts or layouts that do not fit each other.
  shape_mismatch = 2,
  /// Element types that the operation does not take, or that differ between
  /// arguments that must agree.
  dtype_mismatch = 3,
  /// Memory, stream or execution on different devices.
  device_mismatch = 4,
  /// Less workspace than the operation's `*_workspace` function asks for.
  workspace_too_small = 5,

  // -- devices ----------------------------------------------------------------

  /// The device does not exist here, or this build has no code for it.
  device_unavailable = 10,
  /// The device reported a failure: a launch, a copy or an earlier kernel.
  device_failure = 11,

  // -- membership -------------------------------------------------------------

  /// A negative identifier, 0 (the owner's), 2^63 - 1, one outside of a relay's
  /// range, or, if the master has a number of participants, one not below it.
  invalid_identifier = 20,
  /// An identifier that this generation already has.
  duplicate_identifier = 21,
  /// A message from a sender that is not registered, a copy of a layer before
  /// its replication callback, or a round of more or fewer copies than take
  /// part.
  unregistered = 22,
  /// A message of an older generation, or after a round that has failed:
  /// register again.
  stale = 23,
  /// The master no longer serves.
  master_down = 24,

  // -- rounds -----------------------------------------------------------------

  /// A participant died, exited or let go of its pipe.
  participant_down = 30,
  /// A participant sent two messages in one round.
  duplicate_message = 31,
  /// A participant sent a message that belongs to another round.
  wrong_round = 32,
  /// A participant sent a message that belongs to another layer.
  wrong_layer = 33,
  /// A participant did not come before the round's deadline.
  deadline_exceeded = 34,
  /// The master's callback threw.
  callback_failed = 35,
  /// The master's callback left out, repeated or made up an identifier.
  invalid_reply = 36,
  /// A participant gave up before its part of the round was done.
  participant_failed = 37,

  // -- messages ---------------------------------------------------------------

  /// A message from another node that is damaged, too large or of a version
  /// that this library does not speak; a reply of another size; counters that
  /// cannot count the batch.
  malformed_message = 40,
};

/// Returns the enumerator's name, for example `"deadline_exceeded"`.
[[nodiscard]] std::string to_string(errc code);

/// Sets `code` to the value that `to_string` calls `name`. For an unknown name,
/// returns false and leaves `code` as it was.
[[nodiscard]] bool from_string(std::string_view name, errc& code);

/// Sets `code` to the enumerator of that value. For an unknown value, returns
/// false and leaves `code` as it was.
[[nodiscard]] bool from_integer(std::uint8_t value, errc& code);

/// What kernels and constructors of this library throw. `what()` names the
/// operation (or one of its parts), the argument, what was expected and what
/// was found.
class error : public std::runtime_error {
public:
  /// An error of that code and text.
  error(errc code, const std::string& text);

  /// The reason.
  [[nodiscard]] errc code() const noexcept {
    return code_;
  }

private:
  errc code_;
};

} // namespace syncnorm
