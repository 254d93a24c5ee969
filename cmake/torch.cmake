# Defines the target `torch`, its Torch_VERSION, and SYNCNORM_TORCH_HAS_CUDA:
# whether it has CUDA. With SYNCNORM_TORCH_ROOT it is the libtorch in that folder;
# users of an installed syncnorm::torch still need find_package(Torch). Also finds
# OpenMP, if present, which libtorch's headers use.
include(${CMAKE_CURRENT_LIST_DIR}/torch_folder.cmake)
if(NOT TARGET torch)
  if(SYNCNORM_TORCH_ROOT)
    syncnorm_torch_folder(torch "${SYNCNORM_TORCH_ROOT}")
    set(TORCH_LIBRARIES torch)
    syncnorm_torch_version(Torch_VERSION "${SYNCNORM_TORCH_ROOT}")
  else()
    find_package(Torch REQUIRED)
  endif()
endif()

set(SYNCNORM_TORCH_HAS_CUDA OFF)
if(TARGET c10_cuda OR EXISTS "${SYNCNORM_TORCH_ROOT}/lib/libc10_cuda.so")
  set(SYNCNORM_TORCH_HAS_CUDA ON)
endif()

find_package(OpenMP QUIET COMPONENTS CXX)
