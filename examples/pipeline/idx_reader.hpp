#pragma once

#include "records.hpp"

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pipeline {

/// Images in the IDX format of MNIST: the bytes 00 00 08 03; the numbers of
/// images, rows and columns as big-endian 32-bit integers; the pixels. Each
/// image is a record.
class idx_reader : public record_reader {
public:
  /// Whether input that begins like this is an IDX file, of any type and number
  /// of dimensions. No text begins so.
  /// @param begin the input's first bytes, two or more.
  static bool accepts(std::string_view begin);

  /// @param repeat how many times to read the file.
  /// @throws std::runtime_error for another type or number of dimensions, no
  ///         image, an incomplete image, or bytes after the last.
  idx_reader(
      std::unique_ptr<std::istream> input, std::string name,
      std::uint64_t repeat, const record_policies& policies = {},
      std::shared_ptr<stop_signal> stop = std::make_shared<stop_signal>());

  [[nodiscard]] std::int64_t features() const override;

protected:
  bool read(std::span<float> to) override;
  [[nodiscard]] std::string place(std::size_t column) const override;

private:
  void take_magic();
  void take_head();
  std::uint32_t take_number();
  /// Checks that the file holds at least the first image, and nothing after the
  /// last.
  void check_size();
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_at_end() const;

  std::unique_ptr<std::istream> input_;
  std::string name_;
  std::uint64_t passes_left_;
  std::uint64_t images_ = 0;
  /// In bytes.
  std::size_t image_size_ = 0;
  std::uint64_t image_ = 0;
  std::vector<char> pixels_;
};

} // namespace pipeline
