#pragma once

#include "records.hpp"

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <vector>

namespace pipeline {

/// Images in the IDX format of MNIST: the bytes 00 00 08 03, the number of
/// images, of rows and of columns as big-endian 32-bit integers, the pixels. A
/// record is an image.
class idx_reader : public record_reader {
public:
  /// Whether `input` begins as such a file; it is left at its beginning.
  static bool accepts(std::istream& input);

  /// @param repeat how many times to read the file.
  /// @throws std::runtime_error for a head that is none, or not one image.
  idx_reader(
      std::unique_ptr<std::istream> input, std::string name,
      std::uint64_t repeat, const record_policies& policies = {},
      std::shared_ptr<stop_signal> stop = std::make_shared<stop_signal>());

  [[nodiscard]] std::int64_t features() const override;

protected:
  bool read(std::span<float> to) override;
  [[nodiscard]] std::string place(std::size_t column) const override;

private:
  std::uint32_t take_number();
  [[noreturn]] void fail_at_end() const;

  std::unique_ptr<std::istream> input_;
  std::string name_;
  std::uint64_t passes_left_;
  std::uint64_t images_ = 0;
  std::uint64_t image_ = 0;
  std::vector<char> pixels_;
};

} // namespace pipeline
