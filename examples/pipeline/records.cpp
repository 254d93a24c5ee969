#include "records.hpp"

#include "csv_reader.hpp"
#include "idx_reader.hpp"
#include "stoppable_input.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace pipeline {

bad_record_policy parse_policy(const std::string& option,
                               const std::string& word, bool may_pass) {
  if (word == "refuse")
    return bad_record_policy::refuse;
  if (word == "skip")
    return bad_record_policy::skip;
  if (may_pass && word == "pass")
    return bad_record_policy::pass;
  throw std::invalid_argument{
      "--" + option + ": expected "
      + (may_pass ? "refuse, skip or pass" : "refuse or skip") + ", got \""
      + word + "\""};
}

record_reader::record_reader(record_policies policies,
                             std::shared_ptr<stop_signal> stop)
    : policies_{policies},
      stop_{std::move(stop)} {}

bool record_reader::next(std::span<float> to) {
  while (!is_stopped()) {
    try {
      if (!read(to))
        return false;
    } catch (const malformed_record& x) {
      pass_over(x);
      continue;
    }
    if (admit(to)) {
      ++counts_.delivered;
      return true;
    }
  }
  return false;
}

void record_reader::pass_over(const malformed_record& bad) {
  if (policies_.malformed == bad_record_policy::refuse)
    throw malformed_record{bad};
  skip(counts_.skipped_malformed, bad.what());
}

bool record_reader::admit(std::span<const float> record) {
  auto bad = std::ranges::find_if_not(record,
                                      [](float x) { return std::isfinite(x); });
  if (bad == record.end())
    return true;
  if (policies_.not_finite == bad_record_policy::pass) {
    ++counts_.passed_not_finite;
    return true;
  }
  auto column = static_cast<std::size_t>(bad - record.begin()) + 1;
  auto why =
      place(column) + ": expected a finite number, got " + std::to_string(*bad);
  if (policies_.not_finite == bad_record_policy::refuse)
    throw malformed_record{why};
  skip(counts_.skipped_not_finite, why);
  return false;
}

void record_reader::skip(std::uint64_t& counter, const std::string& why) {
  ++counter;
  if (counts_.first_skipped.empty())
    counts_.first_skipped = why;
}

void expect_uncompressed(const std::string& name, std::string_view begin) {
  if (begin.starts_with("\x1F\x8B"))
    throw std::runtime_error{name
                             + ": expected CSV or IDX, got a file compressed "
                               "by gzip; decompress it"};
}

namespace {

/// The first bytes, up to `size`; the file is left at its beginning.
std::string begin_of(std::ifstream& file, std::size_t size) {
  std::string result(size, '\0');
  file.read(result.data(), static_cast<std::streamsize>(size));
  result.resize(static_cast<std::size_t>(file.gcount()));
  file.clear();
  file.seekg(0);
  return result;
}

std::unique_ptr<record_reader> open_idx(const std::string& path,
                                        std::uint64_t repeat,
                                        const record_policies& policies,
                                        std::shared_ptr<stop_signal> stop) {
  // A pipe's first bytes could not be read again.
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem))
    return nullptr;
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!*file)
    return nullptr;
  auto begin = begin_of(*file, 2);
  expect_uncompressed(path, begin);
  if (!idx_reader::accepts(begin))
    return nullptr;
  return std::make_unique<idx_reader>(std::move(file), path, repeat, policies,
                                      std::move(stop));
}

} // namespace

std::unique_ptr<record_reader> open_records(const std::string& path,
                                            std::uint64_t repeat, bool header,
                                            const record_policies& policies,
                                            std::shared_ptr<stop_signal> stop) {
  // "-" may also be a file's name.
  std::unique_ptr<record_reader> result;
  if (path != "-")
    result = open_idx(path, repeat, policies, stop);
  if (result && header)
    throw std::runtime_error{path + ": --header: expected CSV, got IDX"};
  if (!result && repeat != 1)
    throw std::runtime_error{path
                             + ": --repeat: expected a file of IDX, got CSV"};
  if (!result)
    result = std::make_unique<csv_reader>(
        std::make_unique<stoppable_input>(path, stop),
        path == "-" ? "standard input" : path, header, policies, stop);
  return result;
}

} // namespace pipeline
