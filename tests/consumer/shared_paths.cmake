# Checks that shared libraries, wherever they are installed, find those of ours
# beside them: a program that links one of them gives its own path to none that
# it does not call itself.
#
#   cmake -DSOURCE=<project> -DBINARY=<dir> -DGENERATOR=<name> -DCXX=<compiler>
#         -DMAKE=<program> -DCAF_DIR=<dir> -P shared_paths.cmake
execute_process(
  COMMAND
    ${CMAKE_COMMAND} --fresh -S "${SOURCE}" -B "${BINARY}" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_MAKE_PROGRAM=${MAKE}"
    "-DCAF_DIR=${CAF_DIR}" -DBUILD_SHARED_LIBS=ON -DSYNCNORM_ENABLE_CUDA=OFF
    -DSYNCNORM_ENABLE_TORCH=OFF -DSYNCNORM_ENABLE_TESTS=OFF
    -DSYNCNORM_ENABLE_EXAMPLES=OFF
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(READ "${BINARY}/cmake_install.cmake" script)
# CMake writes "\$ORIGIN" or, since 4, [[$ORIGIN]].
string(REGEX MATCHALL "NEW_RPATH[^\n]*" paths "${script}")
if(NOT paths)
  message(FATAL_ERROR "expected a library that needs another one of ours, found "
                      "none in ${BINARY}/cmake_install.cmake")
endif()
foreach(path IN LISTS paths)
  if(NOT path MATCHES "^NEW_RPATH (\"\\\\?[$]ORIGIN\"|\\[\\[[$]ORIGIN\\]\\])\\)$")
    message(FATAL_ERROR "expected the path $ORIGIN in each installed library, "
                        "found ${path} in ${BINARY}/cmake_install.cmake")
  endif()
endforeach()
