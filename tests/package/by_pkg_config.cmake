# Compiles SOURCE with what pkg-config says of MODULE and nothing else, then runs
# it.
#
#   cmake -DCXX=<compiler> -DPKG_CONFIG=<program> -DPC_PATH=<folder>
#         -DMODULE=<name> -DSOURCE=<file> -DPROGRAM=<file>
#         -DLIBRARY_PATH=<folders> -P by_pkg_config.cmake
set(ENV{PKG_CONFIG_PATH} "${PC_PATH}")
execute_process(
  COMMAND "${PKG_CONFIG}" --cflags --libs "${MODULE}"
  OUTPUT_VARIABLE flags
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "${MODULE}: ${flags}")
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND "${CXX}" -std=c++20 "${SOURCE}" -o "${PROGRAM}" ${flags}
                        COMMAND_ERROR_IS_FATAL ANY)
set(ENV{LD_LIBRARY_PATH} "${LIBRARY_PATH}")
execute_process(COMMAND "${PROGRAM}" COMMAND_ERROR_IS_FATAL ANY)
