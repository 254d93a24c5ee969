#pragma once

#include <syncnorm/batch_norm_replica.hpp>

#include <string>

// Statistics in a file: the arrays of a replica's state by their names, as
// text. Every number comes back with the same bits.

namespace pipeline {

/// The file itself, which links to it must go on naming; it need not be there
/// yet.
/// @throws std::runtime_error for links that lead to no end.
std::string behind_links(const std::string& file);

/// Leaves alone what is there.
/// @throws std::runtime_error if `save_state` could not write the file.
void expect_writable(const std::string& file);

/// Writes the file whole or not at all, beside it first, under a name that
/// nobody else has.
/// @throws std::runtime_error if it cannot be written; what was there before
///         stays.
void save_state(const std::string& file, syncnorm::batch_norm_replica& replica);

/// Overwrites the state of `replica`.
/// @throws std::runtime_error, with nothing overwritten, for a file that cannot
///         be read or is damaged, or a state of another number of channels or
///         of another kind.
void load_state(const std::string& file, syncnorm::batch_norm_replica& replica);

/// Whether the file holds online statistics.
/// @throws std::runtime_error for a file that cannot be read or is damaged.
bool holds_online_state(const std::string& file);

} // namespace pipeline
