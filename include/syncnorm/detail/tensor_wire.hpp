#pragma once

#include "syncnorm/tensor_view.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace syncnorm::detail {

/// What precedes the bytes of a tensor sent to another node, little-endian:
/// dtype, memory format, N, C, S.
using tensor_header = std::array<std::int64_t, 5>;

[[nodiscard]] tensor_header make_tensor_header(const tensor_layout& layout);

/// Returns the layout, without gaps and in host memory, that another node's
/// header describes, or nothing if it describes none, or not one of `bytes`
/// bytes.
[[nodiscard]] std::optional<tensor_layout>
parse_tensor_header(const tensor_header& header, std::uint64_t bytes);

/// Reverses the bytes of each element of `width` bytes.
void reverse_elements(std::span<std::byte> bytes, std::size_t width);

} // namespace syncnorm::detail
