#include "trainer/input/cifar10.hpp"

#include "trainer/input/byte_file.hpp"

#include <fmt/format.h>

namespace syncnorm::train {

namespace {

void load_record(byte_file& file, std::size_t number, labelled_images& into) {
  auto at = file.offset();
  auto record =
      file.take(1 + into.shape.size(), fmt::format("record {}", number));
  if (record[0] >= dataset::classes)
    file.fail(at, fmt::format("a label below {}", dataset::classes),
              fmt::format("{}", record[0]));
  into.labels.push_back(record[0]);
  into.pixels.insert(into.pixels.end(), record.begin() + 1, record.end());
}

} // namespace

labelled_images load_cifar10(std::span<const std::filesystem::path> files) {
  labelled_images result;
  result.shape = {3, 32, 32};
  for (const auto& path : files) {
    byte_file file{path};
    for (std::size_t i = 0; file.offset() < file.size() || i == 0; ++i)
      load_record(file, i, result);
  }
  return result;
}

} // namespace syncnorm::train
