# Options and their defaults: these depend on what is found; tests, examples and
# benchmarks are on by default only where syncnorm is the top-level project.

# A project that includes this one links what is found here, too.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

if(SYNCNORM_ENABLE_ACTORS OR NOT DEFINED SYNCNORM_ENABLE_ACTORS)
  find_package(CAF QUIET COMPONENTS core io openssl)
endif()
set(SYNCNORM_TORCH_ROOT
    ""
    CACHE PATH "Folder of include/ and lib/ of a libtorch, or empty")
if(SYNCNORM_TORCH_ROOT)
  set(Torch_FOUND ON)
elseif(SYNCNORM_ENABLE_TORCH OR NOT DEFINED SYNCNORM_ENABLE_TORCH)
  find_package(Torch QUIET)
endif()
if(SYNCNORM_ENABLE_CUDA OR NOT DEFINED SYNCNORM_ENABLE_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
endif()

set(syncnorm_cuda_found OFF)
if(CMAKE_CUDA_COMPILER)
  set(syncnorm_cuda_found ON)
endif()
set(syncnorm_caf_found OFF)
if(CAF_FOUND)
  set(syncnorm_caf_found ON)
endif()

option(SYNCNORM_ENABLE_ACTORS "Build syncnorm::actors (needs CAF)"
       ${syncnorm_caf_found})
set(syncnorm_torch_found OFF)
if(SYNCNORM_ENABLE_ACTORS AND (TORCH_FOUND OR Torch_FOUND))
  set(syncnorm_torch_found ON)
endif()
option(SYNCNORM_ENABLE_CUDA "Build the CUDA kernels (needs the CUDA toolkit)"
       ${syncnorm_cuda_found})
option(SYNCNORM_ENABLE_TORCH "Build syncnorm::torch (needs libtorch and CAF)"
       ${syncnorm_torch_found})
option(SYNCNORM_ENABLE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SYNCNORM_ENABLE_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(SYNCNORM_INSTALL "Install what is built" ${PROJECT_IS_TOP_LEVEL})
option(SYNCNORM_ENABLE_BENCH "Build the benchmarks" OFF)
option(SYNCNORM_ENABLE_FUZZ "Build the fuzzers (needs clang)" OFF)
option(SYNCNORM_WARNINGS_AS_ERRORS "Treat our own warnings as errors" OFF)
set(SYNCNORM_SANITIZE
    ""
    CACHE STRING "Value of -fsanitize= for everything built here, or empty")

if(SYNCNORM_ENABLE_TORCH AND NOT SYNCNORM_ENABLE_ACTORS)
  message(
    FATAL_ERROR
      "SYNCNORM_ENABLE_TORCH is ON and SYNCNORM_ENABLE_ACTORS, which "
      "syncnorm::torch needs, is not: CAF was not found, or it is set to OFF "
      "(-DSYNCNORM_ENABLE_TORCH=OFF leaves syncnorm::torch out)")
endif()

if(PROJECT_IS_TOP_LEVEL
   AND NOT CMAKE_BUILD_TYPE
   AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE
      Release
      CACHE STRING "Build type" FORCE)
endif()

# A later standard may be chosen. Within a project that has an earlier one, each
# target requires C++20 itself.
if(NOT CMAKE_CXX_STANDARD)
  set(CMAKE_CXX_STANDARD 20)
elseif(CMAKE_CXX_STANDARD LESS 20 AND PROJECT_IS_TOP_LEVEL)
  message(FATAL_ERROR "syncnorm needs C++20 or later, CMAKE_CXX_STANDARD is "
                      "${CMAKE_CXX_STANDARD}")
endif()
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT DEFINED CMAKE_POSITION_INDEPENDENT_CODE)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(SYNCNORM_SANITIZE)
  add_compile_options(-fsanitize=${SYNCNORM_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  # A null pointer faults anyway, and AddressSanitizer sees what object-size
  # would: these checks only slow down the compilation.
  add_compile_options(-fno-sanitize=null,object-size)
  add_link_options(-fsanitize=${SYNCNORM_SANITIZE})
endif()

if(SYNCNORM_ENABLE_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # 7.5 is the oldest that nvcc 13 knows; the last one also includes PTX.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90)
  endif()
  enable_language(CUDA)
  # CMake 3.25.1 (Debian 12) does not know that nvcc 12 and later support C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # FindCUDAToolkit of CMake 3.25 wants a target that CUDA 13 has no library for.
  if(CMAKE_VERSION VERSION_LESS 3.26 AND CMAKE_CUDA_COMPILER_VERSION
                                         VERSION_GREATER_EQUAL 13)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  endif()
  find_package(CUDAToolkit REQUIRED)
  # merge_moments takes its parts as kernel parameters.
  if(CUDAToolkit_VERSION VERSION_LESS 12.1)
    message(
      FATAL_ERROR
        "syncnorm needs CUDA 12.1 or later, whose kernels take over 4 KB of "
        "parameters; found ${CUDAToolkit_VERSION} "
        "(-DSYNCNORM_ENABLE_CUDA=OFF leaves CUDA out)")
  endif()
endif()
