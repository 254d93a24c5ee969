# syncnorm_torch_folder(TARGET FOLDER): the libtorch in FOLDER, which has
# include/ and lib/, as the imported library TARGET. Meant for that of a Python
# package, whose own package file requires CUDA toolkit components that nothing
# here needs.
function(syncnorm_torch_folder target folder)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(
    ${target} SYSTEM INTERFACE "${folder}/include"
                               "${folder}/include/torch/csrc/api/include")
  # libtorch.so refers to nothing, and registers what it brings when loaded, as
  # does libtorch_cuda.so. What the latter refers to, NCCL and the like, it then
  # finds itself.
  target_link_options(${target} INTERFACE
                      "LINKER:--no-as-needed,--allow-shlib-undefined")
  # It has its own fmt, in another version than the library that we link.
  if(EXISTS "${folder}/include/fmt")
    target_compile_definitions(${target} INTERFACE FMT_HEADER_ONLY)
  endif()
  foreach(part IN ITEMS torch torch_cpu torch_cuda c10 c10_cuda)
    if(EXISTS "${folder}/lib/lib${part}.so")
      target_link_libraries(${target} INTERFACE "${folder}/lib/lib${part}.so")
    endif()
  endforeach()
endfunction()

# syncnorm_torch_version(OUT FOLDER): the version of the libtorch in FOLDER.
function(syncnorm_torch_version out folder)
  set(parts)
  foreach(file IN ITEMS torch/headeronly/version.h
                        torch/csrc/api/include/torch/version.h)
    if(NOT parts AND EXISTS "${folder}/include/${file}")
      file(STRINGS "${folder}/include/${file}" parts
           REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    endif()
  endforeach()
  list(TRANSFORM parts REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN parts "." version)
  set(${out}
      "${version}"
      PARENT_SCOPE)
endfunction()
