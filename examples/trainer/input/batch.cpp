#include "trainer/input/batch.hpp"

#include "trainer/plan/epoch_order.hpp"

namespace syncnorm::train {

namespace {

/// Keeps these random numbers apart from those of the epochs' order.
constexpr std::uint64_t shift_purpose = 0x5348494654U;

} // namespace

image_shift shift_of(std::size_t limit, std::uint64_t seed, std::uint64_t epoch,
                     std::uint32_t sample) {
  random_stream random{seed ^ shift_purpose, epoch << 32 | sample};
  auto side = [&] {
    return static_cast<std::ptrdiff_t>(random.below(2 * limit + 1))
           - static_cast<std::ptrdiff_t>(limit);
  };
  auto down = side();
  return {down, side()};
}

void normalize_image(const dataset& data, const labelled_images& part,
                     std::size_t sample, image_shift shift,
                     std::span<float> out) {
  auto pixels = part.image(sample);
  const auto height = static_cast<std::ptrdiff_t>(part.shape.height);
  const auto width = static_cast<std::ptrdiff_t>(part.shape.width);
  auto* to = out.data();
  for (std::size_t c = 0; c < part.shape.channels; ++c) {
    const auto* plane =
        pixels.data() + c * part.shape.height * part.shape.width;
    auto mean = data.mean[c];
    auto scale = 1 / data.deviation[c];
    for (std::ptrdiff_t row = 0; row < height; ++row)
      for (std::ptrdiff_t column = 0; column < width; ++column) {
        auto y = row - shift.down;
        auto x = column - shift.right;
        auto inside = y >= 0 && y < height && x >= 0 && x < width;
        auto pixel = inside ? plane[y * width + x] : 0;
        *to++ = static_cast<float>((pixel - mean) * scale);
      }
  }
}

} // namespace syncnorm::train
