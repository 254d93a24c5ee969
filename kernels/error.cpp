#include "syncnorm/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace syncnorm {

namespace {

using entry = std::pair<errc, std::string_view>;

constexpr auto entries = std::to_array<entry>({
    {errc::none, "none"},
    {errc::invalid_argument, "invalid_argument"},
    {errc::shape_mismatch, "shape_mismatch"},
    {errc::dtype_mismatch, "dtype_mismatch"},
    {errc::device_mismatch, "device_mismatch"},
    {errc::workspace_too_small, "workspace_too_small"},
    {errc::device_unavailable, "device_unavailable"},
    {errc::device_failure, "device_failure"},
    {errc::invalid_identifier, "invalid_identifier"},
    {errc::duplicate_identifier, "duplicate_identifier"},
    {errc::unregistered, "unregistered"},
    {errc::stale, "stale"},
    {errc::master_down, "master_down"},
    {errc::participant_down, "participant_down"},
    {errc::duplicate_message, "duplicate_message"},
    {errc::wrong_round, "wrong_round"},
    {errc::wrong_layer, "wrong_layer"},
    {errc::deadline_exceeded, "deadline_exceeded"},
    {errc::callback_failed, "callback_failed"},
    {errc::invalid_reply, "invalid_reply"},
    {errc::participant_failed, "participant_failed"},
    {errc::malformed_message, "malformed_message"},
});

} // namespace

std::string to_string(errc code) {
  auto i = std::ranges::find(entries, code, &entry::first);
  return std::string{i == entries.end() ? "unknown" : i->second};
}

bool from_string(std::string_view name, errc& code) {
  auto i = std::ranges::find(entries, name, &entry::second);
  if (i == entries.end())
    return false;
  code = i->first;
  return true;
}

bool from_integer(std::uint8_t value, errc& code) {
  auto i = std::ranges::find(entries, static_cast<errc>(value), &entry::first);
  if (i == entries.end())
    return false;
  code = i->first;
  return true;
}

error::error(errc code, const std::string& text)
    : std::runtime_error{text},
      code_{code} {}

} // namespace syncnorm
