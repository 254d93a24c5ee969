#pragma once

#include "syncnorm/batch_norm_master.hpp"

#include <string>
#include <vector>

namespace syncnorm {

/// The master of one layer of a model: copies of the model in other processes
/// need it to take part in the layer's rounds.
struct layer_master {
  /// The layer's path inside the model, for example `"features.3"`.
  std::string path;
  /// The master of the layer.
  batch_norm_master_actor master;
};

/// The masters of all synchronized layers of a model. It has no type ID: to
/// send it, put it into a message type of your own, registered in your block,
/// as `lineup` in examples/trainer/run/messages.hpp.
using layer_masters = std::vector<layer_master>;

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, layer_master& x) {
  return detail::inspect_object(f, x, "syncnorm::layer_master",
                                detail::field("path", x.path),
                                detail::field("master", x.master));
}

} // namespace syncnorm
