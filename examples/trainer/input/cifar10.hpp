#pragma once

#include "trainer/input/dataset.hpp"

#include <filesystem>
#include <span>

namespace syncnorm::train {

/// Reads files of CIFAR-10's binary version, one after the other: records of
/// one label and 3 x 32 x 32 bytes, channel by channel.
/// Source: https://www.cs.toronto.edu/~kriz/cifar.html
/// @throws failure for a file that ends inside a record, or a label of 10 or
///         more.
[[nodiscard]] labelled_images
load_cifar10(std::span<const std::filesystem::path> files);

} // namespace syncnorm::train
