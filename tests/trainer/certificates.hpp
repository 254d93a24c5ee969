#pragma once

#include "tests/trainer/scratch_folder.hpp"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace syncnorm::train {

/// The files of `scripts/make-certs.sh`, including the bad ones, and a key that
/// is no key. The folder `abroad` has the foreign certificate for a node that
/// accepts it: there `ca.pem` holds both CAs.
class certificates {
public:
  certificates() {
    auto command = std::string{SYNCNORM_MAKE_CERTS} + " " + folder() + " --bad";
    if (std::system((command + " >/dev/null").c_str()) != 0)
      throw std::runtime_error{command + " failed"};
    write_bytes(folder_ / "broken.key", {'n', 'o'});
    make_abroad();
  }

  [[nodiscard]] std::string folder() const {
    return folder_.path().string();
  }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (folder_ / name).string();
  }

  /// Connects to `port` on this machine and shows the expired certificate,
  /// which `use_tls` would not do; returns when it is refused.
  void show_expired(std::uint16_t port) const {
    auto command = "timeout 60 openssl s_client -quiet -connect 127.0.0.1:"
                   + std::to_string(port) + " -cert " + file("expired.pem")
                   + " -key " + file("expired.key") + " -CAfile "
                   + file("ca.pem");
    if (std::system((command + " </dev/null >/dev/null 2>&1").c_str()) < 0)
      throw std::runtime_error{command + " failed"};
  }

private:
  void make_abroad() const {
    auto abroad = folder_ / "abroad";
    std::filesystem::create_directory(abroad);
    for (const auto* name : {"foreign.pem", "foreign.key"})
      std::filesystem::copy_file(folder_ / name, abroad / name);
    auto both =
        read_text(folder_ / "ca.pem") + read_text(folder_ / "foreign-ca.pem");
    write_bytes(abroad / "ca.pem", {both.begin(), both.end()});
  }

  scratch_folder folder_;
};

} // namespace syncnorm::train
