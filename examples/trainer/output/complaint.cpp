#include "trainer/output/complaint.hpp"

#include <cstdio>

namespace syncnorm::train {

void complain(const std::string& line) noexcept {
  // Writes each line in one piece: several threads complain.
  std::fprintf(stderr, "syncnorm-train: %s\n", line.c_str());
}

} // namespace syncnorm::train
