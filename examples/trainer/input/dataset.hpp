#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace syncnorm::train {

/// Size of one image: C channels of height x width pixels.
struct image_shape {
  std::size_t channels = 0;
  std::size_t height = 0;
  std::size_t width = 0;

  friend bool operator==(const image_shape&, const image_shape&) = default;

  /// Bytes of one image.
  [[nodiscard]] std::size_t size() const noexcept {
    return channels * height * width;
  }
};

/// Images and their labels. Pixels are stored as (sample, channel, row,
/// column), one byte each.
struct labelled_images {
  image_shape shape;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  /// Number of samples.
  [[nodiscard]] std::size_t size() const noexcept {
    return labels.size();
  }

  [[nodiscard]] std::span<const std::uint8_t> image(std::size_t i) const {
    return std::span{pixels}.subspan(i * shape.size(), shape.size());
  }
};

/// The data to learn and to test on. All replicas of a process share one,
/// read-only.
struct dataset {
  /// All formats that are read have ten classes.
  static constexpr std::uint8_t classes = 10;

  labelled_images training;
  labelled_images held_out;
  /// Of each channel over all training pixels; the deviation is 1 where all
  /// pixels are equal. Images are shifted and scaled by these.
  std::vector<double> mean;
  std::vector<double> deviation;
  /// Tells data sets apart: a checksum (CRC-32) of the training part in the
  /// lower half, one of the held-out part in the upper half.
  std::uint64_t fingerprint = 0;
};

using dataset_ptr = std::shared_ptr<const dataset>;

/// Reads the data set in `folder`: IDX files under MNIST's names, gzip or not,
/// or CIFAR-10's binary files.
/// @throws failure if neither is there, or naming file, offset, expected and
///         found if a file is not what it should be.
[[nodiscard]] dataset_ptr load_dataset(const std::filesystem::path& folder);

/// Completes a data set from its two parts.
/// @param from  names the data set in errors.
/// @throws failure if the parts are empty or of different shape.
[[nodiscard]] dataset_ptr make_dataset(labelled_images training,
                                       labelled_images held_out,
                                       const std::string& from = "data set");

} // namespace syncnorm::train
