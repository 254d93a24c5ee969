# What `cmake --install` leaves for find_package(syncnorm).
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
    FILE_SET HEADERS)
  install(
    EXPORT syncnorm-${component}
    NAMESPACE syncnorm::
    FILE syncnorm-${component}-targets.cmake
    DESTINATION "${syncnorm_package_dir}")
endforeach()

configure_package_config_file(
  cmake/syncnorm-config.cmake.in syncnorm-config.cmake
  INSTALL_DESTINATION "${syncnorm_package_dir}")
write_basic_package_version_file(syncnorm-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(
  FILES "${CMAKE_CURRENT_BINARY_DIR}/syncnorm-config.cmake"
        "${CMAKE_CURRENT_BINARY_DIR}/syncnorm-config-version.cmake"
        cmake/FindCAF.cmake
  DESTINATION "${syncnorm_package_dir}")
