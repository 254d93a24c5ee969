# syncnorm_options(TARGET): compile options of all our targets. The warnings are
# private: no target that links syncnorm inherits them. Two are off for g++
# before 13, which reports false overflows in std::vector.
function(syncnorm_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(
    ${target}
    PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wall
      -Wextra
      -Wpedantic
      $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>
      -Wnon-virtual-dtor
      -Wcast-align
      -Wunused
      -Woverloaded-virtual>
      $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-array-bounds>
      $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-stringop-overflow>
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SYNCNORM_WARNINGS_AS_ERRORS}>>:-Werror>
  )
endfunction()

# syncnorm_library(NAME): the library syncnorm_NAME, known as syncnorm::NAME
# here and after installation. A shared one exports all of its symbols, even in
# a project that hides its own, and finds our other libraries beside it wherever
# they are installed: a program's own path applies only to the libraries that it
# needs itself.
function(syncnorm_library name)
  add_library(syncnorm_${name})
  add_library(syncnorm::${name} ALIAS syncnorm_${name})
  set_target_properties(
    syncnorm_${name}
    PROPERTIES EXPORT_NAME ${name}
               VERIFY_INTERFACE_HEADER_SETS ON
               CXX_VISIBILITY_PRESET default
               CUDA_VISIBILITY_PRESET default
               VISIBILITY_INLINES_HIDDEN OFF
               VERSION ${PROJECT_VERSION}
               # Like the package's version: before 1.0 a minor one breaks.
               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  if(NOT DEFINED CMAKE_INSTALL_RPATH)
    set_target_properties(syncnorm_${name} PROPERTIES INSTALL_RPATH "$ORIGIN")
  endif()
  syncnorm_options(syncnorm_${name})
endfunction()

# syncnorm_compile_together(TARGET N): compiles N sources at a time as one file,
# so that CAF's and libtorch's headers cost their seconds only once.
# -DCMAKE_UNITY_BUILD=OFF compiles each by itself.
function(syncnorm_compile_together target n)
  if(DEFINED CMAKE_UNITY_BUILD AND NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON
                                             UNITY_BUILD_BATCH_SIZE ${n})
endfunction()

# syncnorm_program(TARGET SOURCES... LINK LIBRARIES...): one of our own
# executables (a test, an example or a benchmark).
function(syncnorm_program target)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  add_executable(${target} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${target} PRIVATE ${arg_LINK})
  syncnorm_options(${target})
endfunction()
