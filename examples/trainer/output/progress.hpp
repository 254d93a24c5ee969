#pragma once

#include "trainer/output/metrics_file.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

namespace syncnorm::train {

/// Where a run stands, as the progress line shows it.
struct progress_state {
  std::uint64_t epoch = 0;
  std::uint64_t epochs = 0;
  /// Samples of the epoch: done, and all.
  std::uint64_t done = 0;
  std::uint64_t samples = 0;
  /// Mean loss of the samples done.
  double loss = 0;
  /// Wall-clock seconds of the epoch's steps so far.
  double seconds = 0;
  /// Share of `seconds` spent waiting for other replicas.
  double waiting = 0;
  /// Wall-clock seconds that the last evaluation took; 0 before the first.
  double evaluation = 0;
};

/// `"epoch  3/15   832/1437  loss 0.2471  10234 samples/s  waiting  4.1 %
/// ETA 0:17"`: the ETA at the rate of this epoch, with an evaluation after each
/// and one at the end, as long as the last one took.
[[nodiscard]] std::string progress_line(const progress_state& state);

/// `"epoch  3/15  loss 0.2471  held-out loss 0.1873  accuracy 95.28 %  10234
/// samples/s  waiting  4.1 %  ETA 0:17"`
[[nodiscard]] std::string epoch_line(const progress_state& state,
                                     const metrics_row& epoch);

/// Shows the progress on a stream: on a terminal, one line that is redrawn ten
/// times a second, cut off where it would not fit, and one line per epoch that
/// stays; otherwise only the latter.
class progress_display {
public:
  explicit progress_display(std::FILE* out);

  /// After a step.
  void show(const progress_state& state);

  /// After an epoch.
  void finish(const progress_state& state, const metrics_row& epoch);

  /// A line of its own.
  void note(const std::string& line);

private:
  void clear();

  std::FILE* out_;
  bool terminal_;
  double last_drawn_ = 0;
};

} // namespace syncnorm::train
