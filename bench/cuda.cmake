# The CUDA kernels against libtorch's: only where a libtorch with CUDA is named,
# as its package file wants CUDA components that the kernels do without.
set(SYNCNORM_BENCH_TORCH_ROOT
    ""
    CACHE PATH "Folder of include/ and lib/ of a libtorch with CUDA, or empty")

find_package(fmt REQUIRED)

if(SYNCNORM_BENCH_TORCH_ROOT)
  set(syncnorm_peer cuda_torch_peer.cpp)
else()
  set(syncnorm_peer cuda_no_peer.cpp)
endif()
syncnorm_bench(
  cuda_kernels
  cuda_kernels.cpp
  cuda_tensors.cpp
  ${syncnorm_peer}
  LINK
  syncnorm::kernels
  fmt::fmt
  CUDA::cudart)
if(SYNCNORM_BENCH_TORCH_ROOT)
  set(syncnorm_torch "${SYNCNORM_BENCH_TORCH_ROOT}")
  target_include_directories(
    bench_cuda_kernels SYSTEM
    PRIVATE "${syncnorm_torch}/include"
            "${syncnorm_torch}/include/torch/csrc/api/include")
  # Nothing refers to libtorch_cuda: it registers its operators when loaded.
  target_link_libraries(
    bench_cuda_kernels
    PRIVATE "-Wl,--no-as-needed"
            "${syncnorm_torch}/lib/libtorch.so"
            "${syncnorm_torch}/lib/libtorch_cpu.so"
            "${syncnorm_torch}/lib/libtorch_cuda.so"
            "${syncnorm_torch}/lib/libc10.so")
endif()
