# Runs a program, and fails unless it exits with the status EXIT and what it
# prints, by either stream, matches the regular expression PRINTS.
#
#   cmake -DEXIT=0 -DPRINTS=REGEX -P expect.cmake -- PROGRAM [ARGUMENT...]

set(command "")
set(begun FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(begun)
    string(REPLACE ";" "\\;" argument "${CMAKE_ARGV${i}}")
    list(APPEND command "${argument}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(begun TRUE)
  endif()
endforeach()
execute_process(
  COMMAND ${command}
  RESULT_VARIABLE status
  OUTPUT_VARIABLE printed
  ERROR_VARIABLE printed ECHO_OUTPUT_VARIABLE ECHO_ERROR_VARIABLE)
if(NOT status STREQUAL EXIT)
  message(FATAL_ERROR "expected the exit status ${EXIT}, got ${status}")
endif()
if(NOT printed MATCHES "${PRINTS}")
  message(FATAL_ERROR "what is printed does not match \"${PRINTS}\"")
endif()
