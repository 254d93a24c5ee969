#pragma once

#include <stdexcept>

namespace syncnorm::train {

/// Why the program stops: one line for the user, which names the file, option
/// or replica, what was expected and what was found.
class failure : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

} // namespace syncnorm::train
