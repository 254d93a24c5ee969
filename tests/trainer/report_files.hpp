#pragma once

#include "trainer/output/event_file.hpp"
#include "trainer/output/metrics_file.hpp"
#include "trainer/output/report.hpp"

#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace syncnorm::train {

/// A possible row of metrics for a step of the first epoch.
inline metrics_row step_row(std::uint64_t step) {
  metrics_row row;
  row.epoch = 1;
  row.step = step;
  row.learning_rate = 0.1;
  row.samples = 64;
  row.loss = 1.0 / 3.0;
  row.seconds = 0.25;
  row.waiting = 0.5;
  return row;
}

/// A possible row of metrics for an epoch whose last step is `step`.
inline metrics_row epoch_row(std::uint64_t epoch, std::uint64_t step) {
  auto row = step_row(step);
  row.epoch = epoch;
  row.held_out_loss = 0.1;
  row.held_out_accuracy = 0.97;
  return row;
}

/// The number whose little-endian bytes begin at `at`.
inline std::uint64_t number_at(const std::string& text, std::size_t at,
                               std::size_t bytes) {
  std::uint64_t result = 0;
  for (auto i = bytes; i > 0; --i)
    result = result << 8 | static_cast<std::uint8_t>(text[at + i - 1]);
  return result;
}

/// The data of a file's records, whose frames are right.
inline std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < file.size();) {
    auto size = number_at(file, at, 8);
    REQUIRE(size <= file.size() - at - 16);
    result.push_back(file.substr(at + 12, size));
    REQUIRE(file.substr(at, size + 16) == tf_record(result.back()));
    at += size + 16;
  }
  return result;
}

/// The one event file of a folder of logs.
inline std::filesystem::path
only_event_file(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& x : std::filesystem::directory_iterator{folder})
    if (x.path().filename().string().starts_with("events.out.tfevents."))
      files.push_back(x.path());
  REQUIRE(files.size() == 1);
  return files[0];
}

/// While it exists, the test's output goes to a file.
class printing_to {
public:
  explicit printing_to(const std::filesystem::path& file)
      : before_{::dup(STDOUT_FILENO)} {
    std::fflush(stdout);
    auto out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(out, STDOUT_FILENO);
    ::close(out);
  }

  printing_to(const printing_to&) = delete;
  printing_to& operator=(const printing_to&) = delete;

  ~printing_to() {
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
  }

private:
  int before_;
};

/// The error text of a run that is to write metrics to `file`.
inline std::string report_to(const std::filesystem::path& file) {
  settings options;
  options.metrics = file;
  return message_of([&] {
    report run{options, 0, 0};
    run.add(step_row(1));
    run.finish();
  });
}

} // namespace syncnorm::train
