#pragma once

#include "trainer/plan/settings.hpp"

#include "syncnorm/compat.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace syncnorm::train {

/// CAF's configuration with the trainer's options, from the command line and a
/// configuration file (`--config-file`).
class config : public caf::actor_system_config {
public:
  config();

  /// Reads the command line.
  /// @returns the options, checked; nothing if the help text was printed
  ///          instead.
  /// @throws failure in one line.
  std::optional<settings> read(int argc, char** argv);

private:
  // In the order of the help text.
  void add_model_options(compat::option_group& all);
  void add_training_options(compat::option_group& all);
  void add_file_options(compat::option_group& all);
  void add_process_options(compat::option_group& all);
  void add_security_options(compat::option_group& all);

  /// Sees to it that strangers cannot take part: TLS, or this machine alone.
  void protect();

  /// @param option  `serve`, `join` or `listen`.
  void check_address(const std::string& option, const std::string& text) const;

  /// An option that counts, read with its sign: CAF 0.17 takes what exceeds
  /// 2^63 for 0 otherwise.
  struct count_option {
    const char* name;
    std::size_t* out;
    std::int64_t least;
    std::int64_t value;
  };

  /// Returns what CAF reads for `out`.
  std::int64_t& count(std::size_t& out, const char* name, std::int64_t least);

  /// @throws failure for a count that is too small.
  void read_counts();

  settings options_;
  /// What names the host to serve at or to join, unless options do: a
  /// launcher's variable; null if none does.
  const char* host_variable_ = nullptr;
  // Options point to their elements.
  std::deque<count_option> counts_;
  std::string model_ = "cnn";
  std::string norm_ = "sync";
  std::string precision_ = "f32";
  std::string schedule_ = "cosine";
  std::string on_failure_ = "stop";
};

} // namespace syncnorm::train
