# The target `torch`, and SYNCNORM_TORCH_HAS_CUDA: whether that libtorch has
# CUDA. With SYNCNORM_TORCH_ROOT it is the libtorch of that folder, such as that
# of a Python package, whose own package file wants components of the CUDA
# toolkit that nothing here needs; who uses an installed syncnorm::torch has to
# find_package(Torch) all the same.
if(NOT TARGET torch)
  if(SYNCNORM_TORCH_ROOT)
    add_library(torch INTERFACE IMPORTED GLOBAL)
    target_include_directories(
      torch SYSTEM
      INTERFACE "${SYNCNORM_TORCH_ROOT}/include"
                "${SYNCNORM_TORCH_ROOT}/include/torch/csrc/api/include")
    set(TORCH_LIBRARIES torch)
    # libtorch.so refers to nothing, and registers what it brings when loaded.
    # What libtorch_cuda.so refers to, NCCL and the like, it finds itself then.
    target_link_options(torch INTERFACE
                        "LINKER:--no-as-needed,--allow-shlib-undefined")
    # A fmt of its own, of another version than the library that we link.
    if(EXISTS "${SYNCNORM_TORCH_ROOT}/include/fmt")
      target_compile_definitions(torch INTERFACE FMT_HEADER_ONLY)
    endif()
    foreach(part IN ITEMS torch torch_cpu torch_cuda c10 c10_cuda)
      if(EXISTS "${SYNCNORM_TORCH_ROOT}/lib/lib${part}.so")
        target_link_libraries(torch
                              INTERFACE "${SYNCNORM_TORCH_ROOT}/lib/lib${part}.so")
      endif()
    endforeach()
  else()
    find_package(Torch REQUIRED)
  endif()
endif()

set(SYNCNORM_TORCH_HAS_CUDA OFF)
if(TARGET c10_cuda OR EXISTS "${SYNCNORM_TORCH_ROOT}/lib/libc10_cuda.so")
  set(SYNCNORM_TORCH_HAS_CUDA ON)
endif()
