# Fails if the library names a lock or a way to sleep: State belongs to one
# actor; whoever waits, waits on a future_result.
#
#   cmake -DROOT=<repository> -P no_locks.cmake

set(forbidden
    "mutex"
    "condition_variable"
    "counting_semaphore"
    "binary_semaphore"
    "std::latch"
    "std::barrier"
    "<latch>"
    "<barrier>"
    "<semaphore(\\.h)?>"
    "<threads\\.h>"
    "(^|[^a-z_])(sem|mtx|cnd|thrd)_[a-z]+[(]"
    "lock_guard"
    "unique_lock"
    "scoped_lock"
    "shared_lock"
    "call_once"
    "sleep_for"
    "sleep_until"
    "pthread_"
    "spinlock"
    "(^|[^a-z_])(usleep|(clock_)?nanosleep|sleep)[(]"
    "cuda(Stream|Device|Event)Synchronize")

file(
  GLOB_RECURSE
  sources
  "${ROOT}/include/*.hpp"
  "${ROOT}/actors/*.[hc]pp"
  "${ROOT}/kernels/*.[hc]pp"
  "${ROOT}/kernels/*.cu"
  "${ROOT}/kernels/*.cuh")
list(LENGTH sources count)
if(count EQUAL 0)
  message(FATAL_ERROR "no sources under ${ROOT}")
endif()

# The one place that waits for a device: what a stream's detached waiter calls.
set(allowed
    "/kernels/cuda/device_runtime.cpp:.*scope.check[(]cudaEventSynchronize[(]")

set(found "")
foreach(source IN LISTS sources)
  foreach(word IN LISTS forbidden)
    file(STRINGS "${source}" lines REGEX "${word}")
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "^ *//" AND NOT "${source}:${line}" MATCHES
                                      "${allowed}")
        string(APPEND found "\n${source}: ${line}")
      endif()
    endforeach()
  endforeach()
endforeach()
if(found)
  message(FATAL_ERROR "locks or sleeps in the library:${found}")
endif()
message(STATUS "${count} files, no lock and no sleep")
