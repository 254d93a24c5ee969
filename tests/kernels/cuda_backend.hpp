#pragma once

// The operations in the form in which tests of the CUDA kernels call them, so
// that the same checks run on a GPU and, without one, on the host
// (cuda_emulation.hpp).

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/moments.hpp"
#include "tests/kernels/cuda_tensors.hpp"

#include <cstring>
#include <new>
#include <span>
#include <vector>

namespace syncnorm::testing {

/// Operations with the arguments of the public functions, except execution and
/// workspace, and memory for them to work on.
class backend {
public:
  virtual ~backend() = default;

  [[nodiscard]] virtual device where() const = 0;

  /// Memory aligned to 256 bytes and filled with 0xff.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual void copy_in(void* to, const void* from, std::size_t bytes) = 0;
  /// Waits for the operations before it.
  virtual void copy_out(void* to, const void* from, std::size_t bytes) = 0;

  virtual void batch_moments(const const_tensor_view& x, moments_view& out) = 0;
  virtual void merge_moments(std::span<const const_moments_view> parts,
                             moments_view& out) = 0;
  virtual void finalize_moments(const const_moments_view& total,
                                const finalize_options& options, void* mean,
                                void* inv_std, const running_view& running) = 0;
  virtual void add_arrays(std::span<const void* const> parts,
                          std::int64_t elements, dtype type, void* out) = 0;
  virtual void round_array(const double* from, std::int64_t elements,
                           float* out) = 0;
  virtual void clear_clamped(const void* inv_std, double eps,
                             std::int64_t channels, dtype type,
                             void* sum_dy_xmu) = 0;
  virtual void normalize(const const_tensor_view& x,
                         const channel_parameters& parameters,
                         const tensor_view& y, const fused_tail& tail) = 0;
  virtual void normalize_eval(const const_tensor_view& x,
                              const running_statistics& statistics, double eps,
                              eps_mode mode,
                              const channel_parameters& parameters,
                              const tensor_view& y, const fused_tail& tail) = 0;
  virtual void backward_reduce(const const_tensor_view& dy,
                               const const_tensor_view& x,
                               const channel_parameters& parameters,
                               const std::uint8_t* mask,
                               const backward_sums& out) = 0;
  virtual void backward_input(const const_tensor_view& dy,
                              const const_tensor_view& x,
                              const channel_parameters& parameters,
                              const total_sums& sums, const std::uint8_t* mask,
                              const tensor_view& dx, void* residual_grad) = 0;
  virtual void backward_input_eval(
      const const_tensor_view& dy, const running_statistics& statistics,
      double eps, eps_mode mode, const channel_parameters& parameters,
      const std::uint8_t* mask, const tensor_view& dx, void* residual_grad) = 0;
};

/// A `Base`, a backend, whose memory is the host's.
template <class Base>
class in_host_memory : public Base {
public:
  using Base::Base;

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    auto* memory = ::operator new (bytes + 1, std::align_val_t{256});
    return std::memset(memory, 0xff, bytes + 1);
  }
  void release(void* memory) override {
    ::operator delete (memory, std::align_val_t{256});
  }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
};

/// Memory of a backend.
class buffer {
public:
  buffer(backend& owner, std::span<const std::byte> content)
      : owner_{&owner},
        size_{content.size()},
        data_{owner.allocate(content.size())} {
    if (size_ > 0)
      owner_->copy_in(data_, content.data(), size_);
  }
  ~buffer() {
    owner_->release(data_);
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;

  [[nodiscard]] void* data() const {
    return data_;
  }
  void read(std::span<std::byte> to) const {
    if (!to.empty())
      owner_->copy_out(to.data(), data_, to.size());
  }

private:
  backend* owner_;
  std::size_t size_;
  void* data_;
};

/// A tensor of a backend, filled from one on the host.
class placed_tensor {
public:
  placed_tensor(backend& owner, const host_tensor& from)
      : memory_{owner, from.bytes()},
        host_{from} {}

  [[nodiscard]] void* data() const {
    return static_cast<std::byte*>(memory_.data()) + host_.offset_bytes();
  }
  [[nodiscard]] tensor_view view() const {
    return {data(), host_.layout()};
  }
  /// Returns what the memory holds now.
  [[nodiscard]] host_tensor read() {
    memory_.read(host_.bytes());
    return host_;
  }

private:
  buffer memory_;
  host_tensor host_;
};

/// A backend's array of float32 or float64, with float64 as its interface.
class placed_array {
public:
  placed_array(backend& owner, dtype type, const std::vector<double>& values)
      : type_{type},
        size_{values.size()},
        memory_{owner, encoded(type, values)} {}

  [[nodiscard]] void* data() const {
    return memory_.data();
  }
  [[nodiscard]] std::vector<double> read() const {
    std::vector<std::byte> bytes(size_ * size_of(type_));
    memory_.read(bytes);
    std::vector<double> result(size_);
    for (std::size_t i = 0; i < size_; ++i)
      result[i] = test::read_element(type_, bytes.data() + i * size_of(type_));
    return result;
  }

private:
  static std::vector<std::byte> encoded(dtype type,
                                        const std::vector<double>& values) {
    std::vector<std::byte> bytes(values.size() * size_of(type));
    for (std::size_t i = 0; i < values.size(); ++i)
      test::write_element(type, bytes.data() + i * size_of(type), values[i]);
    return bytes;
  }

  dtype type_;
  std::size_t size_;
  buffer memory_;
};

} // namespace syncnorm::testing
