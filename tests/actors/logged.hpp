#pragma once

#include "syncnorm/compat.hpp"

#include "tests/actors/system.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace syncnorm::test {

/// What CAF's logger writes to a file while `use(system)` runs: component and
/// message, one line each.
template <class Config = config, class Use>
std::string logged(const std::string& level, Use use) {
  auto folder = std::filesystem::temp_directory_path() / "syncnorm-XXXXXX";
  auto name = folder.string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  auto file = name + "/log.txt";
  {
    Config cfg;
    std::istringstream settings{
        "syncnorm { log-level = \"" + level + "\" }\n"
        + (SYNCNORM_CAF_LEGACY
               ? "logger { file-verbosity = 'debug', file-format = \"%c: "
                 "%m%n\", "
                 "file-name = \""
                     + file + "\" }\n"
               : "caf { logger { file { verbosity = \"debug\", format = "
                 "\"%c: %m%n\", path = \""
                     + file + "\" } } }\n")};
    std::vector<std::string> command_line;
    REQUIRE(cfg.parse(command_line, settings) == caf::none);
    caf::actor_system system{cfg};
    use(system);
  }
  std::ifstream in{file};
  std::stringstream text;
  text << in.rdbuf();
  std::filesystem::remove_all(name);
  return text.str();
}

} // namespace syncnorm::test
