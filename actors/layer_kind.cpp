#include "layer_kind.hpp"

#include <fmt/format.h>

namespace syncnorm::detail {

std::string kind_of(const batch_norm_options& options) {
  const batch_norm_options usual;
  auto result = fmt::format("BatchNorm({}, {}", options.channels,
                            to_string(options.type));
  auto add = [&result](bool is_usual, const char* name, const auto& value) {
    if (!is_usual)
      result += fmt::format(", {}={}", name, value);
  };
  auto momentum =
      options.momentum ? fmt::format("{}", *options.momentum) : "none";
  add(options.eps == usual.eps, "eps", options.eps);
  add(options.mode == usual.mode, "mode", "clamp");
  add(options.momentum == usual.momentum, "momentum", momentum);
  add(options.affine == usual.affine, "affine", options.affine);
  add(options.track_running_stats == usual.track_running_stats,
      "track_running_stats", options.track_running_stats);
  add(options.online == usual.online, "online", options.online);
  add(options.frozen == usual.frozen, "frozen", options.frozen);
  return result + ")";
}

} // namespace syncnorm::detail
