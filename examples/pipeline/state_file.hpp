#pragma once

#include <syncnorm/batch_norm_replica.hpp>

#include <string>

// Statistics in a file: the arrays of a replica's state by their names, as
// text. Every number is read back with the same bits.

namespace pipeline {

/// The file itself, which links must still lead to after a save; it need not
/// exist yet.
/// @throws std::runtime_error for links that never end.
std::string behind_links(const std::string& file);

/// Leaves an existing file as it is.
/// @throws std::runtime_error if `save_state` could not write the file.
void expect_writable(const std::string& file);

/// Writes the file completely or not at all: first beside it, under a name that
/// nobody else has.
/// @throws std::runtime_error if it cannot be written; the old file then stays.
void save_state(const std::string& file, syncnorm::batch_norm_replica& replica);

/// Overwrites the state of `replica`.
/// @throws std::runtime_error, with nothing overwritten, for a file that cannot
///         be read or is damaged, or for a state with another number of
///         channels or of another kind.
void load_state(const std::string& file, syncnorm::batch_norm_replica& replica);

/// Whether the file holds online statistics.
/// @throws std::runtime_error for a file that cannot be read or is damaged.
bool holds_online_state(const std::string& file);

} // namespace pipeline
