# FindCAF: CAF's libraries under the target names of CAF 1.x, even if CAF ships
# no CMake package (0.17, as in Debian).
#
#   find_package(CAF [COMPONENTS core io openssl])
#
# defines CAF::core, CAF::io, CAF::openssl as requested, CAF_FOUND and
# CAF_VERSION. CAF's own package takes precedence over this search; set CAF_ROOT
# for a CAF in another place.

include(FindPackageHandleStandardArgs)
find_package(CAF CONFIG QUIET)
# An earlier call may have made the target below.
set(caf_imported FALSE)
if(TARGET CAF::core)
  get_target_property(caf_imported CAF::core SYNCNORM_IMPORTED)
endif()
if(TARGET CAF::core AND NOT caf_imported)
  # CAF 1.x links OpenSSL::SSL and OpenSSL::Crypto but does not look for them.
  if(TARGET CAF::openssl OR TARGET CAF::net)
    find_package(OpenSSL QUIET)
  endif()
  foreach(component IN LISTS CAF_FIND_COMPONENTS)
    set(CAF_${component}_FOUND FALSE)
    if(TARGET CAF::${component})
      set(CAF_${component}_FOUND TRUE)
    endif()
  endforeach()
  set(caf_target CAF::core)
  find_package_handle_standard_args(
    CAF
    REQUIRED_VARS caf_target
    VERSION_VAR CAF_VERSION
    HANDLE_COMPONENTS)
  return()
endif()

if(NOT CAF_FIND_COMPONENTS)
  set(CAF_FIND_COMPONENTS core io)
endif()

find_path(CAF_INCLUDE_DIR caf/config.hpp)
mark_as_advanced(CAF_INCLUDE_DIR)

# 0.17 has: #define CAF_VERSION 1706, which means 0.17.6.
if(CAF_INCLUDE_DIR)
  file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" caf_version_line
       REGEX "^#define CAF_VERSION [0-9]+")
  if(caf_version_line MATCHES "([0-9]+)$")
    math(EXPR caf_major "${CMAKE_MATCH_1} / 10000")
    math(EXPR caf_minor "${CMAKE_MATCH_1} / 100 % 100")
    math(EXPR caf_patch "${CMAKE_MATCH_1} % 100")
    set(CAF_VERSION "${caf_major}.${caf_minor}.${caf_patch}")
  endif()
endif()

foreach(component IN LISTS CAF_FIND_COMPONENTS)
  find_library(CAF_${component}_LIBRARY NAMES caf_${component})
  mark_as_advanced(CAF_${component}_LIBRARY)
  if(CAF_${component}_LIBRARY)
    set(CAF_${component}_FOUND TRUE)
  endif()
endforeach()

# The headers of CAF::openssl include OpenSSL's.
if(CAF_openssl_FOUND)
  find_package(OpenSSL QUIET)
  if(NOT OPENSSL_FOUND)
    set(CAF_openssl_FOUND FALSE)
    set(caf_reason "CAF's openssl module needs OpenSSL's headers")
  endif()
endif()

find_package_handle_standard_args(
  CAF
  REQUIRED_VARS CAF_INCLUDE_DIR CAF_core_LIBRARY
  VERSION_VAR CAF_VERSION
  HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "${caf_reason}")

function(syncnorm_import_caf component)
  if(NOT CAF_${component}_LIBRARY OR TARGET CAF::${component})
    return()
  endif()
  add_library(CAF::${component} UNKNOWN IMPORTED)
  set_target_properties(
    CAF::${component}
    PROPERTIES SYNCNORM_IMPORTED TRUE
               IMPORTED_LOCATION "${CAF_${component}_LIBRARY}"
               INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}"
               INTERFACE_LINK_LIBRARIES "${ARGN}")
endfunction()

if(CAF_FOUND)
  find_package(Threads REQUIRED)
  syncnorm_import_caf(core Threads::Threads)
  syncnorm_import_caf(io CAF::core)
  if(CAF_openssl_FOUND)
    syncnorm_import_caf(openssl CAF::io OpenSSL::SSL OpenSSL::Crypto)
  endif()
endif()
