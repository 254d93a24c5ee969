#include "trainer/input/idx.hpp"

#include "trainer/input/byte_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace syncnorm::train {

namespace {

/// No image of the formats that are read is near this size, and the product of
/// three such dimensions still fits 64 bits.
constexpr std::uint32_t max_side = 1U << 14;

void check_magic(byte_file& file, std::uint8_t dimensions) {
  auto magic = file.take(4, "the magic number");
  if (magic[0] == 0 && magic[1] == 0 && magic[2] == 8 && magic[3] == dimensions)
    return;
  file.fail(0,
            fmt::format("the magic number 00 00 08 {:02x} (bytes in {} "
                        "dimension{})",
                        dimensions, dimensions, dimensions == 1 ? "" : "s"),
            fmt::format("{:02x}", fmt::join(magic, " ")));
}

std::size_t take_side(byte_file& file, std::string_view what) {
  auto at = file.offset();
  auto side = file.take_big_endian(what);
  if (side == 0 || side > max_side)
    file.fail(at, fmt::format("{} from 1 to {}", what, max_side),
              fmt::format("{}", side));
  return side;
}

void load_images(byte_file& file, labelled_images& into) {
  check_magic(file, 3);
  auto count = std::size_t{file.take_big_endian("the number of images")};
  into.shape.channels = 1;
  into.shape.height = take_side(file, "the number of rows");
  into.shape.width = take_side(file, "the number of columns");
  auto pixels = file.take(count * into.shape.size(),
                          fmt::format("{} images of {} x {}", count,
                                      into.shape.height, into.shape.width));
  file.require_end();
  into.pixels.assign(pixels.begin(), pixels.end());
}

void load_labels(byte_file& file, labelled_images& into,
                 const std::filesystem::path& images) {
  check_magic(file, 1);
  auto expected = into.pixels.size() / into.shape.size();
  auto count = std::size_t{file.take_big_endian("the number of labels")};
  if (count != expected)
    file.fail(4,
              fmt::format("{} labels, one for each image of {}", expected,
                          images.string()),
              fmt::format("{}", count));
  auto start = file.offset();
  auto labels = file.take(count, fmt::format("{} labels", count));
  file.require_end();
  auto bad = std::ranges::find_if(
      labels, [](auto label) { return label >= dataset::classes; });
  if (bad != labels.end())
    file.fail(start + static_cast<std::size_t>(bad - labels.begin()),
              fmt::format("a label below {}", dataset::classes),
              fmt::format("{}", *bad));
  into.labels.assign(labels.begin(), labels.end());
}

} // namespace

labelled_images load_idx(const std::filesystem::path& images,
                         const std::filesystem::path& labels) {
  labelled_images result;
  byte_file image_file{images};
  load_images(image_file, result);
  byte_file label_file{labels};
  load_labels(label_file, result, images);
  return result;
}

} // namespace syncnorm::train
