#pragma once

#include <cstdint>
#include <cstring>

namespace syncnorm::cpu {

/// Writes bits one after the other into a mask, from any position on. Bits
/// before the first and after the last stay as they are, if nobody else writes
/// to the same 8 bytes meanwhile.
class bit_writer {
public:
  /// @param mask  null: the bits go nowhere.
  bit_writer(std::uint8_t* mask, std::int64_t position)
      : word_{mask == nullptr ? nullptr : mask + position / 64 * 8},
        filled_{unsigned(position & 63)} {
    if (filled_ != 0 && word_ != nullptr)
      bits_ = load() & low(filled_);
  }

  /// Appends the lowest n bits, 0 < n < 64; the others must be 0.
  void append(std::uint64_t bits, unsigned n) {
    bits_ |= bits << filled_;
    filled_ += n;
    if (filled_ < 64)
      return;
    store(bits_);
    word_ += 8;
    filled_ -= 64;
    bits_ = bits >> (n - filled_);
  }

  /// Writes what has not been written yet.
  void finish() {
    if (filled_ != 0 && word_ != nullptr)
      store(bits_ | (load() & ~low(filled_)));
  }

private:
  static std::uint64_t low(unsigned n) {
    return (std::uint64_t{1} << n) - 1;
  }

  [[nodiscard]] std::uint64_t load() const {
    std::uint64_t result = 0;
    std::memcpy(&result, word_, 8);
    return result;
  }

  void store(std::uint64_t bits) {
    std::memcpy(word_, &bits, 8);
  }

  std::uint8_t* word_;
  unsigned filled_;
  std::uint64_t bits_ = 0;
};

} // namespace syncnorm::cpu
