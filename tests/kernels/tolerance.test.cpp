// docs/numerics.md and tolerance.hpp say the same.

#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace syncnorm;

namespace {

std::string trimmed(const std::string& text) {
  auto first = text.find_first_not_of(" `");
  auto last = text.find_last_not_of(" `");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

/// The cells of the rows of all tables in the document, by the first cell.
std::map<std::string, std::vector<std::string>> table_rows() {
  std::ifstream file{SYNCNORM_SOURCE_DIR "/docs/numerics.md"};
  REQUIRE(file.good());
  std::map<std::string, std::vector<std::string>> result;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| ", 0) != 0)
      continue;
    std::istringstream cells{line.substr(1)};
    std::vector<std::string> row;
    for (std::string cell; std::getline(cells, cell, '|');)
      row.push_back(trimmed(cell));
    result[row[0]] = row;
  }
  return result;
}

void check_cell(const std::string& cell, double value) {
  if (value == 0)
    CHECK(cell == "-");
  else
    CHECK(std::strtod(cell.c_str(), nullptr) == value);
}

} // namespace

TEST_CASE(
    "the table of tolerances in the documentation is the one of the tests") {
  auto documented = table_rows();
  for (const auto& row : tolerance::rows) {
    INFO(std::string{row.operation});
    auto i = documented.find(std::string{row.operation});
    REQUIRE(i != documented.end());
    REQUIRE(i->second.size() >= 6);
    check_cell(i->second[2], row.float32);
    check_cell(i->second[3], row.float64);
    check_cell(i->second[4], row.float16);
    check_cell(i->second[5], row.bfloat16);
  }
}

TEST_CASE("an operation without a tolerance is an error, not a zero") {
  CHECK_THROWS_AS((void) tolerance::of("no operation", dtype::float32),
                  std::out_of_range);
}
