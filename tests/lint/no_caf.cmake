# Fails if the kernels include CAF, directly or by a header of the library: a GPU
# machine without it builds and tests them.
#
#   cmake -DROOT=<repository> -P no_caf.cmake

cmake_minimum_required(VERSION 3.25)

file(
  GLOB_RECURSE sources "${ROOT}/kernels/*.cu" "${ROOT}/kernels/*.cuh"
  "${ROOT}/kernels/*.[hc]pp")
list(LENGTH sources count)
if(count EQUAL 0)
  message(FATAL_ERROR "no sources under ${ROOT}")
endif()

# What is included, directly or by another file of the repository.
set(found "")
set(seen ${sources})
while(sources)
  list(POP_FRONT sources source)
  file(STRINGS "${source}" lines REGEX "^ *# *include")
  foreach(line IN LISTS lines)
    if(line MATCHES "[<\"]caf/")
      string(APPEND found "\n${source}: ${line}")
    elseif(line MATCHES "\"([^\"]+)\"")
      foreach(folder IN ITEMS "${ROOT}" "${ROOT}/include")
        set(path "${folder}/${CMAKE_MATCH_1}")
        if(EXISTS "${path}" AND NOT path IN_LIST seen)
          list(APPEND seen "${path}")
          list(APPEND sources "${path}")
        endif()
      endforeach()
    endif()
  endforeach()
endwhile()
if(found)
  message(FATAL_ERROR "kernels include CAF:${found}")
endif()
list(LENGTH seen count)
message(STATUS "${count} files, none includes CAF")
