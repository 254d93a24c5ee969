#pragma once

#include "trainer/plan/settings.hpp"

#include "syncnorm/detail/caf_compat.hpp"

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
  /// Sees to it that strangers cannot take part: TLS, or this machine alone.
  void protect();

  void check_address(const char* option, const std::string& text) const;

  settings options_;
  std::string model_ = "cnn";
  std::string norm_ = "sync";
  std::string precision_ = "f32";
  std::string schedule_ = "cosine";
  std::string on_failure_ = "stop";
};

} // namespace syncnorm::train
