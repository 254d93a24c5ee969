#pragma once

#include "trainer/child_process.hpp"
#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

// Runs of the program in one process.

namespace syncnorm::train {

using arguments = std::vector<std::string>;

struct outcome {
  int status = 0;
  std::string output;
};

inline arguments command(arguments more) {
  more.insert(more.begin(), SYNCNORM_TRAIN);
  return more;
}

inline outcome train(arguments more) {
  child_process program{command(std::move(more))};
  auto status = program.finish();
  return {status, program.output()};
}

/// What a line of the output says after `start`.
inline std::string line_after(const std::string& output,
                              const std::string& start) {
  auto at = output.find(start);
  if (at == std::string::npos)
    return "no such line";
  return output.substr(at, output.find('\n', at) - at);
}

/// The step that a line of the output names after `start`; 0 without such a
/// line.
inline int step_after(const std::string& output, const std::string& start) {
  auto at = output.find(start);
  return at == std::string::npos ? 0
                                 : std::stoi(output.substr(at + start.size()));
}

inline void refuses(arguments options, const std::string& text) {
  auto result = train(std::move(options));
  CAPTURE(result.output);
  CHECK(result.status == 1);
  auto line = line_after(result.output, "syncnorm-train: ");
  CHECK(contains(line, text));
  // The error is one line, the last.
  CHECK(result.output.ends_with(line + "\n"));
}

/// Runs a script with the program as `$0` and a folder as `$1`.
inline outcome run_script(const std::string& script,
                          const scratch_folder& folder) {
  child_process shell{
      {"/bin/sh", "-c", script, SYNCNORM_TRAIN, folder.path().string()}};
  auto status = shell.finish();
  return {status, shell.output()};
}

} // namespace syncnorm::train
