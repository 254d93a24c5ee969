#pragma once

#include "trainer/scratch_folder.hpp"

#include <filesystem>
#include <string>

namespace syncnorm::train {

/// Fills `folder` with the bundled digits, but with one held-out label changed.
inline void make_other_digits(const std::filesystem::path& folder) {
  std::filesystem::copy(SYNCNORM_DIGITS, folder);
  auto file = folder / "t10k-labels-idx1-ubyte";
  auto text = read_text(file);
  text.back() = static_cast<char>((text.back() + 1) % 10);
  write_bytes(file, {text.begin(), text.end()});
}

} // namespace syncnorm::train
