#pragma once

#include "syncnorm/detail/roster.hpp"
#include "syncnorm/message_types.hpp"
#include "syncnorm/sync_callback.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// Returns what is wrong with the identifiers of the parts that `relay` has
/// sent, if anything: each must be the first one of a node of the tree that
/// lies in its range, and come once.
[[nodiscard]] std::optional<std::string> find_damage(const participant& relay,
                                                     const relay_parts& parts);

/// Reads what `wrap_parts` made. The error's text says what is wrong.
template <class In>
caf::expected<std::vector<identified<In>>>
unwrap_parts(const participant& relay, const relay_parts& parts) {
  if (auto damage = find_damage(relay, parts))
    return make_error(errc::malformed_message, std::move(*damage));
  std::vector<identified<In>> result;
  for (std::size_t i = 0; i < parts.first.size(); ++i) {
    if (!parts.values.template match_element<In>(i))
      return make_error(errc::malformed_message,
                        "a part is of another type than a slave's message");
    result.push_back({parts.first[i], parts.values.template get_as<In>(i)});
  }
  return result;
}

template <class In>
relay_parts wrap_parts(std::vector<identified<In>> parts,
                       caf::timespan waited) {
  relay_parts result{waited, {}, {}};
  caf::message_builder values;
  for (auto& part : parts) {
    result.first.push_back(part.identifier);
    values.append(std::move(part.message));
  }
  result.values = values.move_to_message();
  return result;
}

} // namespace syncnorm::detail
