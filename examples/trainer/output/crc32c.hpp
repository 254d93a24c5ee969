#pragma once

#include <cstdint>
#include <string_view>

namespace syncnorm::train {

/// The CRC-32C (Castagnoli) of `bytes`, as iSCSI and TFRecord use it.
/// Source: RFC 3720, appendix B.4.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes) noexcept;

} // namespace syncnorm::train
