# What `cmake --install` installs: for each component (kernels, actors, torch)
# its library and headers, its part of find_package(syncnorm), and its
# pkg-config file.
#
#   cmake --install <build> [--component kernels]
#
# A component needs those named before it.
include(CMakePackageConfigHelpers)

set(syncnorm_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/syncnorm")
set(syncnorm_components kernels)
if(TARGET syncnorm_actors)
  list(APPEND syncnorm_components actors)
endif()
if(TARGET syncnorm_torch)
  list(APPEND syncnorm_components torch)
endif()

foreach(component IN LISTS syncnorm_components)
  install(
    TARGETS syncnorm_${component}
    EXPORT syncnorm-${component}
    ARCHIVE COMPONENT ${component}
    LIBRARY COMPONENT ${component}
    RUNTIME COMPONENT ${component}
    FILE_SET HEADERS COMPONENT ${component})
  install(
    EXPORT syncnorm-${component}
    NAMESPACE syncnorm::
    FILE syncnorm-${component}-targets.cmake
    DESTINATION "${syncnorm_package_dir}"
    COMPONENT ${component})
endforeach()

# What the package file requires: CAF of the line that this build uses, 0.17 or 1,
# and OpenMP if a static library needs it.
string(REGEX MATCH "^(0[.])?[0-9]+" syncnorm_caf_line "${CAF_VERSION}")
set(syncnorm_needs_openmp OFF)
if(OpenMP_CXX_FOUND AND NOT BUILD_SHARED_LIBS)
  set(syncnorm_needs_openmp ON)
endif()
configure_package_config_file(
  cmake/syncnorm-config.cmake.in syncnorm-config.cmake
  INSTALL_DESTINATION "${syncnorm_package_dir}")
write_basic_package_version_file(syncnorm-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(
  FILES "${CMAKE_CURRENT_BINARY_DIR}/syncnorm-config.cmake"
        "${CMAKE_CURRENT_BINARY_DIR}/syncnorm-config-version.cmake"
  DESTINATION "${syncnorm_package_dir}"
  COMPONENT kernels)
if(TARGET syncnorm_actors)
  install(
    FILES cmake/FindCAF.cmake
    DESTINATION "${syncnorm_package_dir}"
    COMPONENT actors)
endif()

install(
  FILES LICENSE
  DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/syncnorm"
  COMPONENT kernels)

# -- pkg-config ----------------------------------------------------------------

# A program that links a static library must also link the libraries behind it;
# a shared library brings them.
set(syncnorm_pc_behind "Requires:")
set(syncnorm_pc_and_behind ",")
if(BUILD_SHARED_LIBS)
  set(syncnorm_pc_behind "Requires.private:")
  set(syncnorm_pc_and_behind "\nRequires.private:")
endif()
set(syncnorm_pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
# The prefix is relative to the file's place, unless its folder is absolute.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(syncnorm_pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH syncnorm_pc_prefix "/${syncnorm_pc_dir}" "/")
  string(REGEX REPLACE "/$" "" syncnorm_pc_prefix "${syncnorm_pc_prefix}")
  string(PREPEND syncnorm_pc_prefix "\${pcfiledir}/")
endif()
foreach(dir IN ITEMS LIBDIR INCLUDEDIR)
  set(syncnorm_pc_${dir} "\${prefix}")
  cmake_path(APPEND syncnorm_pc_${dir} "${CMAKE_INSTALL_${dir}}")
endforeach()

# syncnorm_pkg_config(COMPONENT): installs syncnorm-COMPONENT.pc. Only generator
# expressions know where the libraries behind it are.
function(syncnorm_pkg_config component)
  set(name syncnorm-${component}.pc)
  configure_file(cmake/${name}.in ${name}.gen @ONLY)
  file(
    GENERATE
    OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}"
    INPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.gen")
  install(
    FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}"
    DESTINATION "${syncnorm_pc_dir}"
    COMPONENT ${component})
endfunction()

set(syncnorm_pc_cuda "")
if(SYNCNORM_ENABLE_CUDA)
  set(syncnorm_pc_cuda " -L$<TARGET_FILE_DIR:CUDA::cudart> -lcudart")
  if(BUILD_SHARED_LIBS)
    string(PREPEND syncnorm_pc_cuda "\nLibs.private:")
  endif()
endif()
syncnorm_pkg_config(kernels)
if(TARGET syncnorm_actors)
  syncnorm_pkg_config(actors)
endif()
