#pragma once

#include "source.hpp"
#include "supervisor.hpp"

#include <memory>
#include <ostream>
#include <string>

namespace pipeline {

/// Spawns the pipeline, waits for the end of the stream, and ends the actors.
/// @param owned      the slaves to be.
/// @param state_file where the statistics are saved at the end; empty: nowhere.
/// @param scores     where the scores are written; null: nowhere.
/// @returns what became of the stream; `failure` says if it ended early. The
///          reader's `stop` ends it.
totals run_stream(caf::actor_system& system,
                  std::shared_ptr<record_reader> reader,
                  const source_options& options, stages owned,
                  const std::string& state_file,
                  std::shared_ptr<std::ostream> scores);

} // namespace pipeline
