#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/plan/settings.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace syncnorm::train {

/// All that must be equal in the processes of one run, one `name=value` per
/// line: the versions, the model, its type, the options of the training, the
/// data.
/// @param model fingerprint of the model; see `engine::fingerprint`.
[[nodiscard]] std::string
run_identity(const settings& options, const dataset& data, std::uint64_t model);

/// How the run `found` differs from `expected`: `"expected batch=64, found
/// batch=32"` for each difference; nothing if they are equal.
[[nodiscard]] std::optional<std::string>
difference_of(std::string_view expected, std::string_view found);

} // namespace syncnorm::train
