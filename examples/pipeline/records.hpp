#pragma once

#include "stop_signal.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

// Where records come from: rows of numbers, all of the same length.

namespace pipeline {

/// What to do with a record that cannot be used.
enum class bad_record_policy : std::uint8_t {
  /// The stream ends there, with an error.
  refuse,
  /// Left out and counted.
  skip,
  /// For NaN and infinity only: passed on and counted.
  pass,
};

/// @throws std::invalid_argument, naming the option, for any other word.
bad_record_policy parse_policy(const std::string& option,
                               const std::string& word, bool may_pass);

struct record_policies {
  /// Another number of features, or text where a number belongs.
  bad_record_policy malformed = bad_record_policy::refuse;
  /// NaN or an infinity.
  bad_record_policy not_finite = bad_record_policy::refuse;
};

/// Every record that was read is counted in exactly one of the first three,
/// except the one that was refused.
struct record_counts {
  std::uint64_t delivered = 0;
  std::uint64_t skipped_malformed = 0;
  std::uint64_t skipped_not_finite = 0;
  /// Delivered records that hold a NaN or an infinity.
  std::uint64_t passed_not_finite = 0;
  /// What was wrong with the first skipped record.
  std::string first_skipped;
};

/// An invalid record. The text names file, line and column.
struct malformed_record : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Reads records one after the other.
class record_reader {
public:
  /// @param stop ends the reading from elsewhere.
  explicit record_reader(
      record_policies policies = {},
      std::shared_ptr<stop_signal> stop = std::make_shared<stop_signal>());
  record_reader(const record_reader&) = delete;
  record_reader& operator=(const record_reader&) = delete;
  virtual ~record_reader() = default;

  /// How many numbers a record has.
  [[nodiscard]] virtual std::int64_t features() const = 0;

  /// Reads the next record that the policies let through. Returns false at the
  /// end, and after a stop.
  /// @throws std::runtime_error for a record that they refuse, or if the input
  ///         cannot be read.
  bool next(std::span<float> to);

  [[nodiscard]] const record_counts& counts() const noexcept {
    return counts_;
  }

  /// Raise it to end the reading from elsewhere.
  [[nodiscard]] const std::shared_ptr<stop_signal>& stop() const noexcept {
    return stop_;
  }

protected:
  /// Reads the next record, whatever its values. Returns false at the end.
  /// @throws malformed_record for an invalid record; the one after it can be
  ///         read.
  virtual bool read(std::span<float> to) = 0;

  /// Counts an invalid record.
  /// @throws malformed_record if the policies refuse it.
  void pass_over(const malformed_record& bad);

  [[nodiscard]] bool is_stopped() const noexcept {
    return stop_->raised() != stop_signal::reason::none;
  }

  /// Where the record read last stands.
  [[nodiscard]] virtual std::string place(std::size_t column) const = 0;

private:
  bool admit(std::span<const float> record);
  void skip(std::uint64_t& counter, const std::string& why);

  record_policies policies_;
  record_counts counts_;
  std::shared_ptr<stop_signal> stop_;
};

/// @param begin the first bytes of the input, as many as there are.
/// @throws std::runtime_error if they are those of a gzip file.
void expect_uncompressed(const std::string& name, std::string_view begin);

/// Opens `path`: as IDX if the file's first bytes say so, else as CSV; `-` is
/// CSV from standard input.
/// @param repeat how many times to read an IDX file; 1 for CSV.
/// @param header whether the first line of CSV is a heading.
/// @param stop   ends the reading from elsewhere.
/// @throws std::runtime_error if it cannot be read, or its format has no such
///         option.
std::unique_ptr<record_reader> open_records(
    const std::string& path, std::uint64_t repeat, bool header,
    const record_policies& policies = {},
    std::shared_ptr<stop_signal> stop = std::make_shared<stop_signal>());

} // namespace pipeline
