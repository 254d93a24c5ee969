#pragma once

#include "records.hpp"

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <vector>

namespace pipeline {

/// Lines of numbers with commas between them. The first record that is one
/// tells how many features there are. Empty lines are no records.
class csv_reader final : public record_reader {
public:
  /// A longer line, in bytes, is an error, for it may never end.
  static constexpr std::size_t longest_line = std::size_t{1} << 26;

  /// @param name   of the file, for errors.
  /// @param header whether the first line that is not empty is a heading.
  /// @throws malformed_record if there is no record, or one before the first
  ///         that the policies refuse.
  /// @throws std::runtime_error for a file of IDX or one compressed by gzip,
  ///         or if the input cannot be read.
  csv_reader(
      std::unique_ptr<std::istream> input, std::string name, bool header,
      const record_policies& policies = {},
      std::shared_ptr<stop_signal> stop = std::make_shared<stop_signal>());

  /// None if it was stopped before the first record.
  [[nodiscard]] std::int64_t features() const override;

protected:
  bool read(std::span<float> to) override;
  [[nodiscard]] std::string place(std::size_t column) const override;

private:
  /// Goes to the first record, and counts its features.
  void open(bool header);

  /// Reads a line; returns false if there is none.
  /// @throws std::runtime_error for one that is too long, or if the input
  ///         cannot be read.
  bool get_line();

  /// Goes to the next line that is not empty. One that a stop has cut off is
  /// none.
  bool take_line();

  /// What only the first line may begin with.
  /// @throws std::runtime_error if it does not begin a text.
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
