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
  /// @throws failure with a text of one line.
  std::optional<settings> read(int argc, char** argv);

private:
  // In the order of the help text.
  void add_model_options(compat::option_group& all);
  void add_training_options(compat::option_group& all);
  void add_file_options(compat::option_group& all);
  void add_process_options(compat::option_group& all);
  void add_security_options(compat::option_group& all);

  /// Makes sure that strangers cannot take part: TLS, or this machine alone.
  void protect();

  /// @param option  `serve`, `join` or `listen`.
  void check_address(const std::string& option, const std::string& text) const;

  /// An option that counts, read as a signed number, because CAF 0.17 reads an
  /// unsigned one above 2^63 as 0.
  struct count_option {
    const char* name;
    std::size_t* out;
    std::int64_t least;
    std::int64_t value;
  };

  /// Returns the variable into which CAF reads the value for `out`.
  std::int64_t& count(std::size_t& out, const char* name, std::int64_t least);

  /// @throws failure for a count that is too small.
  void read_counts();

  settings options_;
  /// The launcher's variable that names the host to serve at or to join, unless
  /// options do; null if there is none.
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
