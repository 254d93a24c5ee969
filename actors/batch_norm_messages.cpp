#include "syncnorm/batch_norm_messages.hpp"

namespace syncnorm {

std::string to_string(round_mode mode) {
  return mode == round_mode::forward ? "forward" : "backward";
}

} // namespace syncnorm
