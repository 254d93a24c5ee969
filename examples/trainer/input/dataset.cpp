#include "trainer/input/dataset.hpp"

#include "trainer/failure.hpp"
#include "trainer/input/cifar10.hpp"
#include "trainer/input/idx.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace syncnorm::train {

namespace {

using std::filesystem::path;

/// The file of that name, or of that name and `.gz`.
std::optional<path> find_file(const path& folder, const std::string& name) {
  for (const auto* ending : {"", ".gz"})
    if (auto file = folder / (name + ending); std::filesystem::exists(file))
      return file;
  return std::nullopt;
}

path require_file(const path& folder, const std::string& name) {
  if (auto file = find_file(folder, name))
    return *file;
  throw failure{fmt::format("{}: expected a file {} or {}.gz, found neither",
                            folder.string(), name, name)};
}

labelled_images load_idx_part(const path& folder, const std::string& part) {
  return load_idx(require_file(folder, part + "-images-idx3-ubyte"),
                  require_file(folder, part + "-labels-idx1-ubyte"));
}

dataset_ptr load_idx_folder(const path& folder) {
  auto training = load_idx_part(folder, "train");
  return make_dataset(std::move(training), load_idx_part(folder, "t10k"),
                      folder.string());
}

dataset_ptr load_cifar10_folder(const path& folder) {
  std::array<path, 5> training;
  for (std::size_t i = 0; i < training.size(); ++i)
    training[i] = require_file(folder, fmt::format("data_batch_{}.bin", i + 1));
  std::array held_out{require_file(folder, "test_batch.bin")};
  return make_dataset(load_cifar10(training), load_cifar10(held_out),
                      folder.string());
}

void measure_channels(dataset& data) {
  const auto& images = data.training;
  const auto plane = images.shape.height * images.shape.width;
  for (std::size_t c = 0; c < images.shape.channels; ++c) {
    // Sums of bytes are exact: 255^2 * samples * plane is far below 2^64.
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    for (std::size_t i = 0; i < images.size(); ++i)
      for (auto x : images.image(i).subspan(c * plane, plane)) {
        sum += x;
        squares += std::uint64_t{x} * x;
      }
    auto count = static_cast<double>(images.size() * plane);
    auto mean = static_cast<double>(sum) / count;
    auto variance = static_cast<double>(squares) / count - mean * mean;
    data.mean.push_back(mean);
    data.deviation.push_back(variance > 0 ? std::sqrt(variance) : 1.0);
  }
}

std::uint64_t checksum_of(const labelled_images& images) {
  auto sum = crc32_z(0, images.pixels.data(), images.pixels.size());
  return crc32_z(sum, images.labels.data(), images.labels.size());
}

std::uint64_t fingerprint_of(const dataset& data) {
  return checksum_of(data.held_out) << 32 | checksum_of(data.training);
}

} // namespace

dataset_ptr make_dataset(labelled_images training, labelled_images held_out,
                         const std::string& from) {
  if (training.size() == 0 || held_out.size() == 0)
    throw failure{fmt::format("{}: expected training and held-out images, "
                              "found {} and {}",
                              from, training.size(), held_out.size())};
  if (training.shape != held_out.shape)
    throw failure{fmt::format(
        "{}: expected held-out images of {} x {}, as the training images, "
        "found {} x {}",
        from, training.shape.height, training.shape.width,
        held_out.shape.height, held_out.shape.width)};
  auto result = std::make_shared<dataset>();
  result->training = std::move(training);
  result->held_out = std::move(held_out);
  result->fingerprint = fingerprint_of(*result);
  measure_channels(*result);
  return result;
}

dataset_ptr load_dataset(const path& folder) {
  if (!std::filesystem::is_directory(folder))
    throw failure{fmt::format("{}: expected a folder with a data set, found "
                              "none",
                              folder.string())};
  if (find_file(folder, "train-images-idx3-ubyte"))
    return load_idx_folder(folder);
  if (find_file(folder, "data_batch_1.bin"))
    return load_cifar10_folder(folder);
  throw failure{fmt::format("{}: expected train-images-idx3-ubyte (or .gz) or "
                            "data_batch_1.bin, found neither",
                            folder.string())};
}

} // namespace syncnorm::train
