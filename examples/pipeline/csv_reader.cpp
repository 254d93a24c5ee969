#include "csv_reader.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace pipeline {

namespace {

std::string_view trim(std::string_view text) {
  constexpr auto blanks = " \t\r";
  auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

} // namespace

csv_reader::csv_reader(std::unique_ptr<std::istream> input, std::string name,
                       bool header)
    : owned_{std::move(input)},
      input_{owned_.get()},
      name_{std::move(name)} {
  open(header);
}

csv_reader::csv_reader(std::istream& input, std::string name, bool header)
    : input_{&input},
      name_{std::move(name)} {
  open(header);
}

void csv_reader::open(bool header) {
  if (header)
    take_line();
  line_waits_ = take_line();
  if (!line_waits_)
    throw malformed_record{name_ + ": expected records, found none"};
  features_ = 1 + static_cast<std::size_t>(std::ranges::count(line_, ','));
}

std::int64_t csv_reader::features() const {
  return static_cast<std::int64_t>(features_);
}

bool csv_reader::take_line() {
  while (std::getline(*input_, line_)) {
    ++line_number_;
    if (!trim(line_).empty())
      return true;
  }
  if (input_->bad())
    throw std::runtime_error{name_ + ": cannot be read"};
  return false;
}

std::string csv_reader::place(std::size_t column) const {
  return name_ + ", line " + std::to_string(line_number_) + ", column "
         + std::to_string(column);
}

bool csv_reader::read(std::span<float> to) {
  if (!std::exchange(line_waits_, false) && !take_line())
    return false;
  auto count = 1 + static_cast<std::size_t>(std::ranges::count(line_, ','));
  if (count != features_)
    throw malformed_record{name_ + ", line " + std::to_string(line_number_)
                           + ": expected " + std::to_string(features_)
                           + " features, got " + std::to_string(count)};
  std::string_view rest{line_};
  for (std::size_t i = 0; i < features_; ++i) {
    auto comma = std::min(rest.find(','), rest.size());
    auto text = trim(rest.substr(0, comma));
    const auto* end = text.data() + text.size();
    auto [stop, problem] = std::from_chars(text.data(), end, to[i]);
    if (problem != std::errc{} || stop != end)
      throw malformed_record{place(i + 1) + ": expected a number, got \""
                             + std::string{text} + "\""};
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return true;
}

} // namespace pipeline
