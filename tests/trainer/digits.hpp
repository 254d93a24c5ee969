#pragma once

#include "trainer/input/dataset.hpp"

namespace syncnorm::train {

/// The bundled digits.
inline const dataset_ptr digits = load_dataset(SYNCNORM_DIGITS);

} // namespace syncnorm::train
