#pragma once

#include "records.hpp"

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <vector>

namespace pipeline {

/// Lines of numbers separated by commas. The first well-formed record sets the
/// number of features. Empty lines are not records.
class csv_reader final : public record_reader {
public:
  /// In bytes. A longer line is an error, for it may never end.
  static constexpr std::size_t longest_line = std::size_t{1} << 26;

  /// @param name   the file's name, for errors.
  /// @param header whether the first nonempty line is a heading.
  /// @throws malformed_record if there is no record, or if the policies refuse
  ///         a malformed one before the first.
  /// @throws std::runtime_error for an IDX file or one compressed by gzip, or
  ///         if the input cannot be read.
  csv_reader(
      std::unique_ptr<std::istream> input, std::string name, bool header,
      const record_policies& policies = {},
      std::shared_ptr<stop_signal> stop = std::make_shared<stop_signal>());

  /// 0 if reading was stopped before the first record.
  [[nodiscard]] std::int64_t features() const override;

protected:
  bool read(std::span<float> to) override;
  [[nodiscard]] std::string place(std::size_t column) const override;

private:
  /// Advances to the first record, and counts its features.
  void open(bool header);

  /// Reads a line; returns false if there is none.
  /// @throws std::runtime_error for a line that is too long, or if the input
  ///         cannot be read.
  bool get_line();

  /// Advances to the next nonempty line. A line that a stop has cut off does
  /// not count.
  bool take_line();

  /// Handles what only the first line may begin with.
  /// @throws std::runtime_error if the line does not begin a text.
  void begin_text();

  /// Reads the numbers of the line.
  /// @throws malformed_record for text where a number belongs.
  void parse(std::span<float> to) const;

  std::unique_ptr<std::istream> input_;
  std::string name_;
  std::string line_;
  std::uint64_t line_number_ = 0;
  std::size_t features_ = 0;
  /// The first record was looked at, but not read.
  bool line_waits_ = false;
};

} // namespace pipeline
