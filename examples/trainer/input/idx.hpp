#pragma once

#include "trainer/input/dataset.hpp"

#include <filesystem>

namespace syncnorm::train {

/// Reads one part of a data set in the IDX format of MNIST: a magic number
/// (00 00 08 and the number of dimensions), the dimensions as big-endian 32-bit
/// integers, the bytes. Source: http://yann.lecun.com/exdb/mnist/
/// @param images file of three dimensions: samples, rows, columns.
/// @param labels file of one dimension.
/// @throws failure for a wrong magic number, a file that is too short or too
///         long, a label of 10 or more, or different numbers of images and
///         labels.
[[nodiscard]] labelled_images load_idx(const std::filesystem::path& images,
                                       const std::filesystem::path& labels);

} // namespace syncnorm::train
