#pragma once

#include "trainer/output/growing_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace syncnorm::train {

/// `data` as one record of a TFRecord file: the length (64 bits), its masked
/// CRC-32C, the data, their masked CRC-32C; integers little-endian.
/// Source: tensorflow/core/lib/io/record_writer.cc
[[nodiscard]] std::string tf_record(std::string_view data);

/// An `Event` message with one scalar: wall_time (1), step (2) and summary (5)
/// with one value (1) of tag (1) and simple_value (2).
/// Source: tensorflow/core/util/event.proto, framework/summary.proto
[[nodiscard]] std::string scalar_event(double wall_time, std::int64_t step,
                                       std::string_view tag, float value);

/// The `Event` that every event file begins with: wall_time (1) and
/// file_version (3), which is `brain.Event:2`.
[[nodiscard]] std::string version_event(double wall_time);

/// An `Event` that says that a run continues at `step`: wall_time (1), step (2)
/// and session_log (7) with status (1) START (1). From other files in the
/// folder, TensorBoard then shows what came before that step.
/// Source: tensorflow/core/util/event.proto
[[nodiscard]] std::string session_event(double wall_time, std::int64_t step);

/// A file of scalars that TensorBoard reads.
class event_file {
public:
  /// Makes a new file `events.out.tfevents.<seconds>.<host>.<process>` in
  /// `folder`.
  /// @param resumed the first step to come, of a run that continues.
  /// @throws failure if it cannot.
  explicit event_file(const std::filesystem::path& folder,
                      std::optional<std::int64_t> resumed = std::nullopt);

  /// @throws failure, for example if the disk is full.
  void add(std::int64_t step, std::string_view tag, double value);

  void flush() {
    file_.flush();
  }

private:
  growing_file file_;
};

} // namespace syncnorm::train
