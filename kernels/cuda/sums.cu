#include "kernels/backend.hpp"
#include "kernels/cuda/add_tree.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/partition.hpp"

namespace syncnorm::cuda {

namespace {

/// A thread for each element.
template <class Task>
__global__ void __launch_bounds__(block_threads)
    array_kernel(const __grid_constant__ Task task) {
  wait_for_earlier_kernels();
  let_next_kernel_come();
  auto element = std::int64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (element < task.elements)
    task.run(element);
}

struct run_array_task {
  const device_scope& scope;
  const char* name;

  template <class Task>
  void operator()(const Task& task) const {
    launch(scope, name, array_kernel<Task>,
           divide_up(task.elements, block_threads), block_threads, task);
  }
};

} // namespace

void add_arrays(const execution& run, array_list parts, std::int64_t elements,
                dtype type, void* out) {
  device_scope scope{run, "add_arrays"};
  run_array_task launcher{scope, "add_arrays_kernel"};
  if (type == dtype::float64)
    with_adds<double>(parts, elements, out, launcher);
  else
    with_adds<float>(parts, elements, out, launcher);
}

void round_array(const execution& run, const double* from,
                 std::int64_t elements, float* out) {
  device_scope scope{run, "round_array"};
  run_array_task launcher{scope, "round_array_kernel"};
  launcher(round_task{from, elements, out});
}

void clear_clamped(const execution& run, const void* inv_std, double eps,
                   std::int64_t channels, dtype type, void* sum_dy_xmu) {
  device_scope scope{run, "clear_clamped"};
  run_array_task launcher{scope, "clear_clamped_kernel"};
  if (type == dtype::float64)
    with_clear<double>(inv_std, eps, channels, sum_dy_xmu, launcher);
  else
    with_clear<float>(inv_std, eps, channels, sum_dy_xmu, launcher);
}

} // namespace syncnorm::cuda
