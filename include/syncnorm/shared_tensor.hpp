#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/detail/raw_array.hpp"
#include "syncnorm/detail/tensor_wire.hpp"
#include "syncnorm/detail/unset_vector.hpp"
#include "syncnorm/device_array.hpp"
#include "syncnorm/tensor_view.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace syncnorm {

/// An immutable tensor in a message: inside a process, copies share its memory.
/// To another node, it travels as its layout and raw little-endian bytes,
/// without gaps between samples; for that, it must lie in host memory.
class shared_tensor {
public:
  /// The largest tensor that is accepted from another node, in bytes: about
  /// what CAF takes in one message. It is further limited by
  /// `syncnorm.max-message`, 1 GiB unless configured.
  static constexpr std::uint64_t max_bytes = std::uint64_t{1} << 31;

  /// No tensor. It cannot be sent to another node.
  shared_tensor() = default;

  /// A tensor in memory that `owner` keeps and nobody writes to any more.
  shared_tensor(const const_tensor_view& view,
                std::shared_ptr<const void> owner)
      : view_{view},
        owner_{std::move(owner)} {}

  /// The tensor, to be read.
  [[nodiscard]] const const_tensor_view& view() const noexcept {
    return view_;
  }

  /// Returns `count` samples from `first` on, in the same memory, for example
  /// to scatter a batch.
  /// @throws error `invalid_argument` if the tensor does not have them.
  [[nodiscard]] shared_tensor samples(std::int64_t first,
                                      std::int64_t count) const;

  /// Bytes that travel to another node.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return static_cast<std::uint64_t>(view_.size()) * size_of(view_.type());
  }

  // -- serialization ----------------------------------------------------------

  /// Writes it as one block of bytes; returns whether that worked.
  template <class Sink>
  bool save(Sink& f) const {
    auto header = detail::make_tensor_header(view_.layout());
    if (view_.where().type != device_type::cpu
        || !detail::write_count(f, bytes())
        || !detail::write_bytes(f, std::as_bytes(std::span{header})))
      return false;
    if (bytes() == 0)
      return true;
    const auto* first = static_cast<const std::byte*>(view_.data());
    auto width = size_of(view_.type());
    auto [samples, channels, spatial] = view_.shape();
    auto sample = static_cast<std::size_t>(channels * spatial) * width;
    auto stride = static_cast<std::size_t>(view_.sample_stride()) * width;
    for (std::size_t n = 0; n < static_cast<std::size_t>(samples); ++n) {
      std::span part{first + n * stride, sample};
      if constexpr (std::endian::native == std::endian::little) {
        if (!detail::write_bytes(f, part))
          return false;
      } else {
        std::vector<std::byte> copy(part.begin(), part.end());
        detail::reverse_elements(copy, width);
        if (!detail::write_bytes(f, std::span<const std::byte>{copy}))
          return false;
      }
    }
    return true;
  }

  /// Reads what `save` has written; returns whether it is sound.
  template <class Source>
  bool load(Source& f) {
    std::uint64_t size = 0;
    detail::tensor_header header{};
    if (!detail::read_count(f, size) || size > max_bytes
        || !detail::read_bytes(f, std::as_writable_bytes(std::span{header})))
      return false;
    auto layout = detail::parse_tensor_header(header, size);
    if (!layout)
      return false;
    // Memory is allocated as the bytes arrive: a false size costs little.
    auto memory = std::make_shared<detail::unset_vector<std::byte>>();
    while (memory->size() < size) {
      auto done = memory->size();
      auto n = std::min<std::size_t>(detail::load_step_bytes, size - done);
      memory->resize(done + n);
      if (!detail::read_bytes(f, std::span{*memory}.subspan(done, n)))
        return false;
    }
    if constexpr (std::endian::native == std::endian::big)
      detail::reverse_elements(*memory, size_of(layout->type));
    *this = shared_tensor{const_tensor_view{memory->data(), *layout}, memory};
    return true;
  }

  template <class Inspector>
  friend auto inspect(Inspector& f, shared_tensor& x) {
    return detail::inspect_raw(f, x, "syncnorm::shared_tensor");
  }

private:
  const_tensor_view view_;
  std::shared_ptr<const void> owner_;
};

/// Several tensors in one message.
struct shared_tensors {
  /// In order.
  std::vector<shared_tensor> each;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, shared_tensors& x) {
  return detail::inspect_object(f, x, "syncnorm::shared_tensors",
                                detail::field("each", x.each));
}

/// Memory for a tensor that is still to be written and then becomes a
/// `shared_tensor`. For many tensors in a row, see `tensor_pool`.
class tensor_memory {
public:
  /// A tensor of `layout`, but without gaps between samples. It lies in host
  /// memory, aligned to 64 bytes, or, given a stream, in memory of its device,
  /// valid from here on in the stream. Its content is unspecified.
  /// @throws error as `make_layout`, before memory is taken; `device_failure`.
  explicit tensor_memory(tensor_layout layout,
                         const device_stream& stream = {});

  /// The tensor, to be written.
  [[nodiscard]] const tensor_view& view() const noexcept {
    return view_;
  }

  /// The tensor, to which nobody may write any more.
  [[nodiscard]] shared_tensor share() const {
    return {view_, bytes_};
  }

private:
  friend class tensor_pool;

  struct alignas(64) cache_line {
    std::byte bytes[64];
  };

  /// @throws error as `make_layout`.
  [[nodiscard]] static tensor_layout without_gaps(const tensor_layout& layout,
                                                  device where);

  /// How many cache lines a tensor without gaps takes in host memory.
  [[nodiscard]] static std::size_t lines_for(const tensor_layout& layout);

  /// A tensor without gaps, in host memory that `lines` keeps.
  tensor_memory(const tensor_layout& layout,
                std::shared_ptr<cache_line[]> lines);

  std::shared_ptr<void> bytes_;
  tensor_view view_;
};

} // namespace syncnorm
