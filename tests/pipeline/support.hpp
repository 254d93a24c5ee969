#pragma once

#include "messages.hpp"
#include "records.hpp"
#include "supervisor.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// What the tests of the pipeline share.

namespace pipeline::test {

inline const std::string digits = SYNCNORM_DIGITS "/t10k-images-idx3-ubyte";

struct pipeline_config : caf::actor_system_config {
  pipeline_config() {
    syncnorm::detail::add_types<caf::id_block::syncnorm,
                                caf::id_block::pipeline>(*this);
  }
};

inline bool init_types() {
  syncnorm::detail::init_types<caf::id_block::syncnorm,
                               caf::id_block::pipeline>();
  return true;
}

struct pipeline_fixture {
  bool types = init_types();
  pipeline_config config;
  caf::actor_system system{config};
};

/// A name in the system's folder for temporary files; the file is removed at
/// the end.
struct scratch_file {
  explicit scratch_file(const std::string& what)
      : name{"/tmp/syncnorm-pipeline-" + std::to_string(::getpid()) + "-"
             + what} {
    std::remove(name.c_str());
  }

  ~scratch_file() {
    std::remove(name.c_str());
  }

  std::string name;
};

inline std::string content(const std::string& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

inline syncnorm::batch_norm_options stream_options(std::int64_t features,
                                                   bool online) {
  syncnorm::batch_norm_options result;
  result.name = "stream";
  result.channels = features;
  result.affine = false;
  result.online = online;
  return result;
}

/// All arrays of the replica's state, one after the other.
inline std::vector<double> state_of(syncnorm::batch_norm_replica& replica) {
  std::vector<double> result;
  for (const auto& array : replica.state())
    std::visit(
        [&](auto values) {
          for (auto x : values)
            result.push_back(static_cast<double>(x));
        },
        array.values);
  return result;
}

} // namespace pipeline::test
