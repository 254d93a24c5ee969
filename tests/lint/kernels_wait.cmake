# Fails if a CUDA kernel does something before it waits for earlier kernels: it is
# launched so that it may come before they have ended (kernels/cuda/launch.cuh).
#
#   cmake -DROOT=<repository> -P kernels_wait.cmake

file(GLOB_RECURSE sources "${ROOT}/kernels/*.cu" "${ROOT}/kernels/*.cuh")
set(count 0)
set(found "")
foreach(source IN LISTS sources)
  file(READ "${source}" text)
  string(REGEX MATCHALL "__global__" kernels "${text}")
  # What it may do before: see what is its to do. (A `;` would end an element of
  # the list.)
  string(REPLACE ";" "$" text "${text}")
  set(before "(auto place =[ \n]*task.place_of|block_merge<[^$]*> merge)[(][^$]*[$]")
  string(REGEX MATCHALL
               "__global__[^{]*{[ \n]*(${before}[ \n]*)*wait_for_earlier_kernels[(]"
               waiting "${text}")
  list(LENGTH kernels all)
  list(LENGTH waiting some)
  math(EXPR count "${count} + ${all}")
  if(NOT all EQUAL some)
    string(APPEND found "\n${source}: ${some} of ${all}")
  endif()
endforeach()
if(count EQUAL 0)
  message(FATAL_ERROR "no kernels under ${ROOT}")
endif()
if(found)
  message(FATAL_ERROR "not all kernels wait for earlier ones first:${found}")
endif()
message(STATUS "${count} kernels, all wait for earlier ones first")
