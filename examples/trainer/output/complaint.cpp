#include "trainer/output/complaint.hpp"

#include <cstdio>

namespace syncnorm::train {

void complain(const std::string& line) noexcept {
  // One write for a line: several threads complain.
  std::fprintf(stderr, "syncnorm-train: %s\n", line.c_str());
}

} // namespace syncnorm::train
