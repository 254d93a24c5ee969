#pragma once

// The public functions as a backend under test, on the CPU and on a GPU.

#include "tests/kernels/cuda_backend.hpp"

namespace syncnorm::testing {

/// The public functions; derived classes provide the memory.
class library_backend : public backend {
public:
  explicit library_backend(const execution& run) : run_{run} {}

  [[nodiscard]] device where() const override {
    return run_.where;
  }
  [[nodiscard]] const execution& run() const {
    return run_;
  }

  void batch_moments(const const_tensor_view& x, moments_view& out) override {
    scratch memory{*this, batch_moments_workspace(x.layout())};
    syncnorm::batch_moments(run_, x, out, memory.view());
  }
  void merge_moments(std::span<const const_moments_view> parts,
                     moments_view& out) override {
    syncnorm::merge_moments(run_, parts, out);
  }
  void finalize_moments(const const_moments_view& total,
                        const finalize_options& options, void* mean,
                        void* inv_std, const running_view& running) override {
    syncnorm::finalize_moments(run_, total, options, mean, inv_std, running);
  }
  void add_arrays(std::span<const void* const> parts, std::int64_t elements,
                  dtype type, void* out) override {
    syncnorm::add_arrays(run_, parts, elements, type, out);
  }
  void round_array(const double* from, std::int64_t elements,
                   float* out) override {
    syncnorm::round_array(run_, from, elements, out);
  }
  void clear_clamped(const void* inv_std, double eps, std::int64_t channels,
                     dtype type, void* sum_dy_xmu) override {
    syncnorm::clear_clamped(run_, inv_std, eps, channels, type, sum_dy_xmu);
  }
  void normalize(const const_tensor_view& x,
                 const channel_parameters& parameters, const tensor_view& y,
                 const fused_tail& tail) override {
    syncnorm::normalize(run_, x, parameters, y, tail);
  }
  void normalize_eval(const const_tensor_view& x,
                      const running_statistics& statistics, double eps,
                      eps_mode mode, const channel_parameters& parameters,
                      const tensor_view& y, const fused_tail& tail) override {
    syncnorm::normalize_eval(run_, x, statistics, eps, mode, parameters, y,
                             tail);
  }
  void backward_reduce(const const_tensor_view& dy, const const_tensor_view& x,
                       const channel_parameters& parameters,
                       const std::uint8_t* mask,
                       const backward_sums& out) override {
    scratch memory{*this, backward_reduce_workspace(x.layout())};
    syncnorm::backward_reduce(run_, dy, x, parameters, mask, out,
                              memory.view());
  }
  void backward_input(const const_tensor_view& dy, const const_tensor_view& x,
                      const channel_parameters& parameters,
                      const total_sums& sums, const std::uint8_t* mask,
                      const tensor_view& dx, void* residual_grad) override {
    syncnorm::backward_input(run_, dy, x, parameters, sums, mask, dx,
                             residual_grad);
  }
  void backward_input_eval(const const_tensor_view& dy,
                           const running_statistics& statistics, double eps,
                           eps_mode mode, const channel_parameters& parameters,
                           const std::uint8_t* mask, const tensor_view& dx,
                           void* residual_grad) override {
    syncnorm::backward_input_eval(run_, dy, statistics, eps, mode, parameters,
                                  mask, dx, residual_grad);
  }

private:
  class scratch {
  public:
    scratch(backend& owner, std::size_t bytes)
        : bytes_{bytes},
          memory_{owner, std::vector<std::byte>(bytes, std::byte{0xff})} {}

    [[nodiscard]] workspace view() const {
      return {memory_.data(), bytes_};
    }

  private:
    std::size_t bytes_;
    buffer memory_;
  };

  execution run_;
};

class cpu_backend : public in_host_memory<library_backend> {
public:
  cpu_backend() : in_host_memory{execution{}} {}
};

} // namespace syncnorm::testing
