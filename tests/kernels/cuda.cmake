# Tests of the CUDA kernels. Those without GPU run anywhere, also in a build
# without CUDA: the kernels' code less the launch, on the host.

syncnorm_test(kernels.cuda_partition cuda_partition.test.cpp LINK
              syncnorm::kernels)
syncnorm_test(kernels.cuda_emulation cuda_emulation.test.cpp LINK
              syncnorm::kernels)
if(NOT SYNCNORM_SANITIZE)
  # A host forgives a vector load that is not aligned, a GPU does not.
  set(syncnorm_strict -fsanitize=alignment,bounds -fno-sanitize-recover=all)
  target_compile_options(test_kernels_cuda_emulation
                         PRIVATE ${syncnorm_strict})
  target_link_options(test_kernels_cuda_emulation PRIVATE ${syncnorm_strict})
endif()
syncnorm_test(kernels.cuda_suite_cpu cuda_suite_cpu.test.cpp LINK
              syncnorm::kernels)
syncnorm_test(kernels.cuda_agreement_cpu cuda_agreement_cpu.test.cpp LINK syncnorm::kernels)
# The library's calls as a build with CUDA has them.
find_package(fmt REQUIRED)
syncnorm_test(
  kernels.cuda_whole_pass cuda_whole_pass.test.cpp
  "${PROJECT_SOURCE_DIR}/kernels/batch_norm.cpp"
  "${PROJECT_SOURCE_DIR}/kernels/moments.cpp"
  "${PROJECT_SOURCE_DIR}/kernels/validate.cpp" LINK syncnorm::kernels fmt::fmt)
target_compile_definitions(test_kernels_cuda_whole_pass
                           PRIVATE SYNCNORM_HAS_CUDA)
# A pack that a thread has not loaded is handed on and not looked at: gcc 12
# takes that for a use. Half optimized they compile in two thirds of the time.
foreach(name IN ITEMS emulation suite_cpu agreement_cpu whole_pass)
  target_compile_options(
    test_kernels_cuda_${name} PRIVATE -Wno-uninitialized
                                      $<$<CONFIG:Release>:-O1>)
endforeach()

if(NOT SYNCNORM_ENABLE_CUDA)
  return()
endif()

syncnorm_test(kernels.cuda_runtime cuda_runtime.test.cpp LINK
              syncnorm::kernels CUDA::cudart)
# Has the source under test in place of the library's, and no CUDA runtime.
syncnorm_test(
  kernels.cuda_faults cuda_faults.test.cpp
  "${PROJECT_SOURCE_DIR}/kernels/cuda/runtime.cpp" LINK syncnorm::kernels
  fmt::fmt CUDA::cudart)
foreach(name IN ITEMS cuda_suite cuda_agreement cuda_streams cuda_large
                      cuda_device_array)
  syncnorm_test(kernels.${name} ${name}.test.cpp cuda_main.cpp LINK
                syncnorm::kernels CUDA::cudart LABELS gpu GPU)
endforeach()
