#include "trainer/model/hash.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace syncnorm::train {

namespace {

constexpr std::uint64_t fnv_offset = 0xcbf29ce484222325U;

/// An incomplete last word is padded with zeros.
std::uint64_t hash_bytes(std::uint64_t hash, const char* data,
                         std::size_t size) {
  for (std::size_t at = 0; at < size; at += sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, std::min(sizeof word, size - at));
    hash = (hash ^ word) * 0x100000001b3U;
  }
  return hash;
}

} // namespace

std::uint64_t fingerprint_of(const network& model) {
  std::uint64_t hash = fnv_offset;
  auto add = [&hash](const auto& named) {
    for (const auto& x : named) {
      auto text = fmt::format("{} {} {}", x.key(),
                              static_cast<int>(x.value().scalar_type()),
                              fmt::join(x.value().sizes(), ","));
      hash = hash_bytes(hash, text.data(), text.size());
    }
  };
  add(model.named_parameters());
  add(model.named_buffers());
  return hash;
}

std::uint64_t hash_of(const std::vector<torch::Tensor>& tensors) {
  auto hash = fnv_offset;
  for (const auto& x : tensors) {
    auto host = x.detach().to(torch::kCPU).contiguous();
    hash = hash_bytes(hash, static_cast<const char*>(host.data_ptr()),
                      host.nbytes());
  }
  return hash;
}

} // namespace syncnorm::train
