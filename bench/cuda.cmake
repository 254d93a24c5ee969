# The CUDA kernels against libtorch's: only where a libtorch with CUDA is named.
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
  cuda_check.cpp
  cuda_tensors.cpp
  ${syncnorm_peer}
  LINK
  syncnorm::kernels
  fmt::fmt
  CUDA::cudart)
if(SYNCNORM_BENCH_TORCH_ROOT)
  include(${PROJECT_SOURCE_DIR}/cmake/torch_folder.cmake)
  syncnorm_torch_folder(bench_peer_torch "${SYNCNORM_BENCH_TORCH_ROOT}")
  target_link_libraries(bench_cuda_kernels PRIVATE bench_peer_torch)
endif()
