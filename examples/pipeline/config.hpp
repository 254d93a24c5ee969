#pragma once

#include "records.hpp"
#include "source.hpp"

#include <syncnorm/batch_norm_options.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace pipeline {

enum class run_mode : std::uint8_t {
  /// Each batch with its own statistics, across all slaves.
  training,
  /// With saved statistics; nothing is learned.
  evaluation,
  /// With the statistics of everything seen so far.
  online,
};

/// CAF's configuration with the pipeline's options, from the command line and a
/// configuration file.
class config : public caf::actor_system_config {
public:
  config();

  /// Reads the command line.
  /// @returns false if the help text was printed instead.
  /// @throws std::runtime_error or std::invalid_argument with a text of one
  ///         line.
  bool read(int argc, char** argv);

  [[nodiscard]] run_mode mode() const;
  [[nodiscard]] record_policies policies() const;
  [[nodiscard]] std::vector<syncnorm::device> devices() const;

  std::string input;
  std::string output;
  std::string state;
  std::uint64_t repeat = 1;
  bool header = false;
  source_options source;

private:
  /// Checks that each file to be written differs from those that are read, from
  /// the other written one, and from what is printed to.
  void check_files() const;

  // Signed, because CAF 0.17 reads an unsigned value above 2^63 as 0.
  std::int64_t repeat_ = 1;
  std::int64_t in_flight_ = 16;
  std::string mode_ = "online";
  std::string devices_ = "cpu:0,cpu:1";
  std::string bad_records_ = "refuse";
  std::string nan_ = "refuse";
  /// The configuration file; empty: none.
  std::string file_;
};

} // namespace pipeline
