#pragma once

#include "trainer/scratch_folder.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace syncnorm::train {

/// What `scripts/make-certs.sh` makes, with the bad ones, and a key that is no
/// key.
class certificates {
public:
  certificates() {
    auto command = std::string{SYNCNORM_MAKE_CERTS} + " " + folder() + " --bad";
    if (std::system((command + " >/dev/null").c_str()) != 0)
      throw std::runtime_error{command + " failed"};
    write_bytes(folder_ / "broken.key", {'n', 'o'});
  }

  [[nodiscard]] std::string folder() const {
    return folder_.path().string();
  }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (folder_ / name).string();
  }

private:
  scratch_folder folder_;
};

} // namespace syncnorm::train
