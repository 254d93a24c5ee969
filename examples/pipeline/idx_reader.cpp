#include "idx_reader.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace pipeline {

namespace {

constexpr std::string_view magic{"\0\0\x08\x03", 4};
constexpr std::streamoff head_size = 16;
constexpr std::uint32_t max_side = 1U << 14;

} // namespace

bool idx_reader::accepts(std::istream& input) {
  std::array<char, magic.size()> head{};
  input.read(head.data(), head.size());
  input.clear();
  input.seekg(0);
  return std::string_view{head.data(), head.size()} == magic;
}

idx_reader::idx_reader(std::unique_ptr<std::istream> input, std::string name,
                       std::uint64_t repeat, const record_policies& policies,
                       std::shared_ptr<stop_signal> stop)
    : record_reader{policies, std::move(stop)},
      input_{std::move(input)},
      name_{std::move(name)},
      passes_left_{repeat} {
  input_->seekg(magic.size());
  images_ = take_number();
  auto rows = take_number();
  auto columns = take_number();
  if (!*input_ || rows == 0 || columns == 0 || rows > max_side
      || columns > max_side)
    throw std::runtime_error{name_
                             + ": expected images of 1 to 16384 rows and "
                               "columns, got "
                             + std::to_string(rows) + " x "
                             + std::to_string(columns)};
  auto pixels = std::size_t{rows} * columns;
  input_->seekg(0, std::ios::end);
  auto size = input_->tellg();
  input_->seekg(head_size);
  if (images_ > 0 && size - head_size < static_cast<std::streamoff>(pixels))
    fail_at_end();
  pixels_.resize(pixels);
}

void idx_reader::fail_at_end() const {
  throw std::runtime_error{name_ + ": expected " + std::to_string(images_)
                           + " images, the file ends in image "
                           + std::to_string(image_ + 1)};
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
  return static_cast<std::int64_t>(pixels_.size());
}

bool idx_reader::read(std::span<float> to) {
  if (passes_left_ == 0 || images_ == 0)
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
