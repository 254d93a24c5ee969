#include "csv_reader.hpp"

#include "idx_reader.hpp"
#include "printable.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
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

std::size_t count_fields(std::string_view line) {
  return 1 + static_cast<std::size_t>(std::ranges::count(line, ','));
}

/// Also accepts a leading plus, which `from_chars` rejects. A number too small
/// for a float becomes 0, or close to it; one too large, an infinity.
bool to_number(std::string_view text, float& to) {
  if (text.starts_with('+') && !text.starts_with("+-"))
    text.remove_prefix(1);
  const auto* end = text.data() + text.size();
  auto [stop, problem] = std::from_chars(text.data(), end, to);
  if (problem == std::errc::result_out_of_range)
    to = std::strtof(std::string{text}.c_str(), nullptr);
  return problem != std::errc::invalid_argument && stop == end;
}

} // namespace

csv_reader::csv_reader(std::unique_ptr<std::istream> input, std::string name,
                       bool header, const record_policies& policies,
                       std::shared_ptr<stop_signal> stop)
    : record_reader{policies, std::move(stop)},
      input_{std::move(input)},
      name_{std::move(name)} {
  // Lets exceptions of the buffer through, which say why nothing can be read.
  input_->exceptions(std::ios::badbit);
  open(header);
}

void csv_reader::open(bool header) {
  if (header)
    take_line();
  while (take_line()) {
    features_ = count_fields(line_);
    std::vector<float> record(features_);
    try {
      parse(record);
      line_waits_ = true;
      return;
    } catch (const malformed_record& x) {
      pass_over(x);
    }
  }
  features_ = 0;
  if (is_stopped())
    return;
  throw malformed_record{counts().skipped_malformed > 0
                             ? counts().first_skipped
                             : name_ + ": expected records, found none"};
}

std::int64_t csv_reader::features() const {
  return static_cast<std::int64_t>(features_);
}

void csv_reader::begin_text() {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  expect_uncompressed(name_, line_);
  if (idx_reader::accepts(line_))
    throw std::runtime_error{name_
                             + ": expected CSV, got IDX, which is read from a "
                               "file only"};
  if (line_.starts_with(byte_order_mark))
    line_.erase(0, byte_order_mark.size());
}

bool csv_reader::get_line() {
  std::array<char, 4096> some;
  line_.clear();
  while (input_->good()) {
    input_->getline(some.data(), some.size());
    auto count = static_cast<std::size_t>(input_->gcount());
    // The count includes the line's end.
    line_.append(some.data(), input_->good() ? count - 1 : count);
    if (!input_->fail())
      return true;
    if (input_->eof())
      break;
    if (line_.size() > longest_line)
      throw std::runtime_error{name_ + ", line "
                               + std::to_string(line_number_ + 1)
                               + ": expected a line of at most "
                               + std::to_string(longest_line) + " bytes"};
    // There is more of the line.
    input_->clear();
  }
  return !line_.empty();
}

bool csv_reader::take_line() {
  while (get_line()) {
    if (input_->eof() && is_stopped())
      return false;
    if (++line_number_ == 1)
      begin_text();
    if (!trim(line_).empty())
      return true;
  }
  return false;
}

std::string csv_reader::place(std::size_t column) const {
  return name_ + ", line " + std::to_string(line_number_) + ", column "
         + std::to_string(column);
}

bool csv_reader::read(std::span<float> to) {
  if (!std::exchange(line_waits_, false) && !take_line())
    return false;
  if (auto count = count_fields(line_); count != features_)
    throw malformed_record{place(std::min(count, features_) + 1) + ": expected "
                           + std::to_string(features_) + " features, got "
                           + std::to_string(count)};
  parse(to);
  return true;
}

void csv_reader::parse(std::span<float> to) const {
  std::string_view rest{line_};
  for (std::size_t i = 0; i < features_; ++i) {
    auto comma = std::min(rest.find(','), rest.size());
    auto text = trim(rest.substr(0, comma));
    if (!to_number(text, to[i]))
      throw malformed_record{place(i + 1) + ": expected a number, got \""
                             + printable(text) + "\""
                             + (line_number_ == 1 ? "; --header leaves out a "
                                                    "heading"
                                                  : "")};
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
}

} // namespace pipeline
