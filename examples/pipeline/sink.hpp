#pragma once

#include "messages.hpp"

#include <syncnorm/future_result.hpp>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

namespace pipeline {

/// What became of the stream, for the waiting thread.
using shared_totals = std::shared_ptr<const totals>;

/// Where the scores are written.
struct score_output {
  /// For errors.
  std::string name;
  /// Null: nowhere.
  std::shared_ptr<std::ostream> stream;
};

/// Writes the scores, one line per record: its number, from 0, and its score.
/// Only a batch that is completely written, up to the system, counts as scored.
/// When all batches are scored, the slaves are dismissed. Spawn it detached:
/// writing blocks its thread.
class sink : public sink_actor::base {
public:
  /// @param stop raised when nothing can be written any more.
  /// @param out  without a stream: only counts.
  /// @param done gets what became of the stream or, if a stage has died, what
  ///             the sink has seen of it.
  sink(caf::actor_config& config, source_actor source,
       supervisor_actor supervisor, std::shared_ptr<stop_signal> stop,
       score_output out,
       std::shared_ptr<syncnorm::future_writer<shared_totals>> done);

  void on_exit() override;
  behavior_type make_behavior() override;

private:
  void write(std::uint64_t number, const syncnorm::double_array& scores);
  void write_lines(const syncnorm::double_array& scores);
  void finish(totals x);
  void report(totals x);
  void fail(const std::string& why);

  source_actor source_;
  supervisor_actor supervisor_;
  std::shared_ptr<stop_signal> stop_;
  score_output out_;
  std::shared_ptr<syncnorm::future_writer<shared_totals>> done_;
  std::uint64_t batches_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t lost_ = 0;
  std::string failure_;
};

} // namespace pipeline
