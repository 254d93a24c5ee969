#include "config.hpp"

#include "messages.hpp"
#include "state_file.hpp"

#include <syncnorm/compat.hpp>
#include <syncnorm/config.hpp>
#include <syncnorm/device.hpp>
#include <syncnorm/error.hpp>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace pipeline {

namespace {

namespace fs = std::filesystem;

/// Whether writing to one path overwrites what is in the other. A terminal or a
/// pipe keeps nothing.
bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code problem;
  if (fs::equivalent(a, b, problem))
    return fs::is_regular_file(a, problem);
  if (fs::exists(a, problem) || fs::exists(b, problem))
    return false;
  auto whole = [&](const fs::path& file) {
    return fs::weakly_canonical(fs::absolute(behind_links(file)), problem);
  };
  return whole(a) == whole(b);
}

/// A file named on the command line: what it is, and its name, empty if there
/// is none.
struct named_file {
  std::string what;
  std::string name;
};

void expect_another(const named_file& one, const named_file& other) {
  if (!one.name.empty() && !other.name.empty()
      && same_file(one.name, other.name))
    throw std::invalid_argument{one.what + ": expected another file than "
                                + other.what + ", got \"" + one.name + "\""};
}

void expect_file(const named_file& one) {
  if (one.name == "-")
    throw std::invalid_argument{one.what
                                + ": expected a file, got \"-\"; ./- is one "
                                  "of that name"};
}

std::uint64_t expect_positive(const std::string& option, std::int64_t value) {
  if (value < 1)
    throw std::runtime_error{option + ": expected 1 or more, got "
                             + std::to_string(value)};
  return static_cast<std::uint64_t>(value);
}

/// The devices of this machine, as words for `--devices`.
std::string known_devices() {
  std::string result;
  for (const auto& x : syncnorm::devices())
    result += (result.empty() ? "" : ", ") + to_string(x);
  return result;
}

syncnorm::device to_device(const std::string& word) {
  auto result = syncnorm::device{};
  try {
    result = syncnorm::parse_device(word);
  } catch (const syncnorm::error&) {
    throw std::invalid_argument{"--devices: expected cpu, cpu:N or cuda:N, "
                                "with commas between them, got \""
                                + word + "\""};
  }
  auto known = syncnorm::devices();
  if (result.type != syncnorm::device_type::cpu
      && std::ranges::find(known, result) == known.end())
    throw std::invalid_argument{"--devices: expected some of those here, "
                                + known_devices() + ", got " + word};
  return result;
}

} // namespace

config::config() {
  syncnorm::compat::add_types<caf::id_block::syncnorm, caf::id_block::pipeline>(
      *this);
  // Slaves compute for only some microseconds between messages: with cores to
  // spare, idle workers look for work for a millisecond before they sleep.
  if (std::thread::hardware_concurrency() > 1)
    syncnorm::compat::poll_when_idle(*this, 20'000);
  syncnorm::compat::option_group{custom_options_, "global"}
      .add(input, "input",
           "records: a file of IDX or CSV, - for CSV from "
           "standard input")
      .add(output, "output", "CSV file of the scores")
      .add(state, "state",
           "file of the statistics: read if it is there, "
           "written at the end")
      .add(mode_, "mode", "training, evaluation or online")
      .add(devices_, "devices",
           "a slave actor each, e.g. cpu:0,cpu:1 or cuda:0,cuda:1")
      .add(source.batch_size, "batch", "records in a batch, over all slaves")
      .add(in_flight_, "in-flight", "batches on their way at a time")
      .add(repeat_, "repeat", "how many times to read a file of IDX")
      .add(header, "header",
           "the first line of CSV that is not empty is a heading")
      .add(bad_records_, "bad-records",
           "lines that are no records: refuse or skip")
      .add(nan_, "nan", "records with NaN or infinity: refuse, skip or pass");
  syncnorm::add_config_options(custom_options_);
}

bool config::read(int argc, char** argv) {
  if (auto problem = syncnorm::compat::read_command_line(*this, custom_options_,
                                                         argc, argv, &file_);
      !problem.empty())
    throw std::runtime_error{problem};
  if (syncnorm::compat::printed_help(*this))
    return false;
  if (input.empty())
    throw std::runtime_error{"--input: expected a file, or - for standard "
                             "input"};
  expect_positive("--batch", source.batch_size);
  source.in_flight = expect_positive("--in-flight", in_flight_);
  repeat = expect_positive("--repeat", repeat_);
  if (mode() == run_mode::evaluation && state.empty())
    throw std::runtime_error{"--mode=evaluation: expected --state, the "
                             "statistics to use"};
  check_files();
  (void) policies();
  (void) devices();
  (void) syncnorm::read_defaults(*this);
  return true;
}

void config::check_files() const {
  named_file read{"--input", input == "-" ? "/dev/stdin" : input};
  named_file scores{"--output", output};
  named_file saved{"--state", state};
  expect_file(scores);
  expect_file(saved);
  for (const auto& written : {scores, saved}) {
    expect_another(written, read);
    expect_another(written, {"the configuration file", file_});
  }
  expect_another(saved, scores);
  for (const auto* stream : {"/dev/stdout", "/dev/stderr"})
    for (const auto& written : {scores, saved})
      expect_another(written, {"the one this program prints to", stream});
}

run_mode config::mode() const {
  if (mode_ == "training")
    return run_mode::training;
  if (mode_ == "evaluation")
    return run_mode::evaluation;
  if (mode_ == "online")
    return run_mode::online;
  throw std::invalid_argument{"--mode: expected training, evaluation or "
                              "online, got \""
                              + mode_ + "\""};
}

record_policies config::policies() const {
  return {parse_policy("bad-records", bad_records_, false),
          parse_policy("nan", nan_, true)};
}

std::vector<syncnorm::device> config::devices() const {
  std::vector<syncnorm::device> result;
  std::istringstream list{devices_};
  for (std::string word; std::getline(list, word, ',');)
    result.push_back(to_device(word));
  if (devices_.empty() || devices_.ends_with(','))
    result.push_back(to_device(""));
  return result;
}

} // namespace pipeline
