#pragma once

#include "sink.hpp"
#include "source.hpp"
#include "supervisor.hpp"

#include <memory>
#include <string>

namespace pipeline {

/// Spawns the pipeline, waits for the end of the stream, and ends the actors.
/// @param owned      the stages that become the slaves.
/// @param state_file where the statistics are saved at the end; empty: nowhere.
/// @param scores     where the scores are written.
/// @returns what became of the stream; `failure` says why if it ended early.
///          The reader's `stop` ends the stream.
totals run_stream(caf::actor_system& system,
                  std::shared_ptr<record_reader> reader,
                  const source_options& options, stages owned,
                  const std::string& state_file, score_output scores);

} // namespace pipeline
