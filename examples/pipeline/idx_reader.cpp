#include "idx_reader.hpp"

#include "printable.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace pipeline {

namespace {

constexpr std::string_view magic{"\0\0\x08\x03", 4};
constexpr std::streamoff head_size = 16;
constexpr std::uint32_t max_side = 1U << 14;

} // namespace

bool idx_reader::accepts(std::string_view begin) {
  return begin.starts_with(magic.substr(0, 2));
}

idx_reader::idx_reader(std::unique_ptr<std::istream> input, std::string name,
                       std::uint64_t repeat, const record_policies& policies,
                       std::shared_ptr<stop_signal> stop)
    : record_reader{policies, std::move(stop)},
      input_{std::move(input)},
      name_{std::move(name)},
      passes_left_{repeat} {
  take_magic();
  take_head();
  check_size();
  pixels_.resize(image_size_);
}

void idx_reader::take_magic() {
  std::array<char, magic.size()> bytes{};
  input_->read(bytes.data(), bytes.size());
  std::string_view found{bytes.data(),
                         static_cast<std::size_t>(input_->gcount())};
  if (found != magic)
    fail("offset 0: expected " + to_hex(magic)
         + " (bytes in 3 dimensions), got " + to_hex(found));
}

void idx_reader::take_head() {
  images_ = take_number();
  auto rows = take_number();
  auto columns = take_number();
  if (!*input_)
    fail("expected a head of " + std::to_string(head_size)
         + " bytes, the file ends in it");
  if (images_ == 0)
    fail("expected images, found none");
  if (rows == 0 || columns == 0 || rows > max_side || columns > max_side)
    fail("expected images of 1 to 16384 rows and columns, got "
         + std::to_string(rows) + " x " + std::to_string(columns));
  image_size_ = std::size_t{rows} * columns;
}

void idx_reader::check_size() {
  input_->seekg(0, std::ios::end);
  std::streamoff size = input_->tellg();
  input_->seekg(head_size);
  if (size - head_size < static_cast<std::streamoff>(image_size_))
    fail_at_end();
  auto end = head_size + static_cast<std::streamoff>(images_ * image_size_);
  if (size > end)
    fail("offset " + std::to_string(end)
         + ": expected the end of the file, got " + std::to_string(size - end)
         + " more bytes");
}

void idx_reader::fail(const std::string& what) const {
  throw std::runtime_error{name_ + ": " + what};
}

void idx_reader::fail_at_end() const {
  fail("expected " + std::to_string(images_)
       + " images, the file ends in image " + std::to_string(image_ + 1));
}

std::uint32_t idx_reader::take_number() {
  std::array<char, 4> bytes{};
  input_->read(bytes.data(), bytes.size());
  std::uint32_t result = 0;
  for (auto byte : bytes)
    result = result << 8 | static_cast<unsigned char>(byte);
  return result;
}

std::int64_t idx_reader::features() const {
  return static_cast<std::int64_t>(image_size_);
}

bool idx_reader::read(std::span<float> to) {
  if (passes_left_ == 0)
    return false;
  input_->read(pixels_.data(), static_cast<std::streamsize>(pixels_.size()));
  if (!*input_)
    fail_at_end();
  for (std::size_t i = 0; i < pixels_.size(); ++i)
    to[i] = static_cast<float>(static_cast<unsigned char>(pixels_[i]));
  if (++image_ == images_) {
    image_ = 0;
    --passes_left_;
    input_->seekg(head_size);
  }
  return true;
}

std::string idx_reader::place(std::size_t column) const {
  return name_ + ", image " + std::to_string(image_) + ", pixel "
         + std::to_string(column);
}

} // namespace pipeline
