#pragma once

#include "trainer/input/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace syncnorm::train {

/// By how many pixels an image is moved: down and to the right. Pixels that
/// come in from outside are zero.
struct image_shift {
  std::ptrdiff_t down = 0;
  std::ptrdiff_t right = 0;

  friend bool operator==(const image_shift&, const image_shift&) = default;
};

/// How sample `sample` is moved in epoch `epoch`: evenly distributed over
/// [-limit, limit] each way. The shift follows from the arguments alone,
/// whatever the replicas are.
[[nodiscard]] image_shift shift_of(std::size_t limit, std::uint64_t seed,
                                   std::uint64_t epoch, std::uint32_t sample);

/// Writes image `sample` of `part`, moved, with each channel shifted and scaled
/// to mean 0 and deviation 1 over the training part.
/// @param out `shape.size()` values.
void normalize_image(const dataset& data, const labelled_images& part,
                     std::size_t sample, image_shift shift,
                     std::span<float> out);

} // namespace syncnorm::train
