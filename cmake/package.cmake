# Debian packages of the components, by CPack:
#
#   kernels  libsyncnorm-kernels-dev
#   actors   libsyncnorm-dev
#   torch    libsyncnorm-torch-dev
#
# Configure with CMAKE_INSTALL_PREFIX=/usr, as scripts/package.sh does, to
# install libraries into Debian's folder for this architecture.

# syncnorm_debian(VAR PACKAGE VERSION LENGTH): PACKAGE in the versions that this
# build works with: from VERSION on, as long as the first LENGTH numbers are the
# same.
function(syncnorm_debian variable package version length)
  string(REPLACE "." ";" numbers "${version}")
  list(SUBLIST numbers 0 ${length} numbers)
  list(POP_BACK numbers last)
  math(EXPR last "${last} + 1")
  string(JOIN "." beyond ${numbers} ${last})
  set(${variable}
      "${package} (>= ${version}), ${package} (<< ${beyond}~)"
      PARENT_SCOPE)
endfunction()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME syncnorm)
set(CPACK_PACKAGE_VENDOR "the syncnorm authors")
set(CPACK_PACKAGE_CONTACT "the syncnorm authors")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/debian_copyright.cmake")
set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${syncnorm_components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)

# A shared library's own dependencies are read from the library.
if(BUILD_SHARED_LIBS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
      "${PROJECT_BINARY_DIR}/kernels" "${PROJECT_BINARY_DIR}/actors")
endif()

find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
set(syncnorm_exact "(= ${PROJECT_VERSION})")
syncnorm_debian(fmt libfmt-dev "${fmt_VERSION}" 1)
syncnorm_debian(hwy libhwy-dev "${hwy_VERSION}" 1)

set(CPACK_DEBIAN_KERNELS_PACKAGE_NAME libsyncnorm-kernels-dev)
set(CPACK_DEBIAN_KERNELS_PACKAGE_DEPENDS "${fmt}, ${hwy}")
set(CPACK_DEBIAN_KERNELS_PACKAGE_SUGGESTS libdlpack-dev)
set(CPACK_COMPONENT_KERNELS_DESCRIPTION
    "The kernels of batch normalization: moments, their merge, normalization
and its backward pass, for CPUs and, if built so, for CUDA. No CAF.")
if(SYNCNORM_ENABLE_CUDA)
  string(REGEX MATCH "^[0-9]+[.][0-9]+" cuda "${CUDAToolkit_VERSION}")
  string(REPLACE "." "-" cuda "${cuda}")
  string(APPEND CPACK_DEBIAN_KERNELS_PACKAGE_DEPENDS
         ", cuda-cudart-dev-${cuda}")
endif()

if(TARGET syncnorm_actors)
  # CAF breaks its interface with each 0.x and each x.
  set(caf_length 1)
  if(CAF_VERSION VERSION_LESS 1)
    set(caf_length 2)
  endif()
  syncnorm_debian(caf libcaf-dev "${CAF_VERSION}" ${caf_length})
  set(CPACK_DEBIAN_ACTORS_PACKAGE_NAME libsyncnorm-dev)
  set(CPACK_DEBIAN_ACTORS_PACKAGE_DEPENDS
      "libsyncnorm-kernels-dev ${syncnorm_exact}, ${caf}, ${fmt}, libssl-dev")
  set(CPACK_COMPONENT_ACTORS_DESCRIPTION
      "The actors: masters and slaves that share the statistics of the whole
batch, a plugin for CAF, the C++ Actor Framework.")
endif()

if(TARGET syncnorm_torch)
  syncnorm_debian(torch libtorch-dev "${Torch_VERSION}" 2)
  set(CPACK_DEBIAN_TORCH_PACKAGE_NAME libsyncnorm-torch-dev)
  set(CPACK_DEBIAN_TORCH_PACKAGE_DEPENDS
      "libsyncnorm-dev ${syncnorm_exact}, ${torch}")
  set(CPACK_COMPONENT_TORCH_DESCRIPTION
      "SynchronizedBatchNorm1d, 2d and 3d, convert_model and data parallelism
for libtorch.")
endif()

include(CPack)
