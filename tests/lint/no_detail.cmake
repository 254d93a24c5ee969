# Fails if an example uses what is in `detail/`, which is nobody's to use: what
# an example needs, its reader needs as well.
#
#   cmake -DROOT=<repository> -P no_detail.cmake

file(GLOB_RECURSE sources "${ROOT}/examples/*.[hc]pp"
     "${ROOT}/tests/consumer/project/*.[hc]pp")
list(LENGTH sources count)
if(count EQUAL 0)
  message(FATAL_ERROR "no sources under ${ROOT}")
endif()

set(found "")
foreach(source IN LISTS sources)
  file(STRINGS "${source}" lines REGEX "detail(/|::)")
  foreach(line IN LISTS lines)
    string(APPEND found "\n${source}: ${line}")
  endforeach()
endforeach()
if(found)
  message(FATAL_ERROR "details of the library in examples:${found}")
endif()
message(STATUS "${count} files, no detail of the library")
