# Checks what the Debian packages say and hold, and unpacks them under ROOT.
#
#   cmake -DDEBS=<folder> -DROOT=<folder> -DVERSION=<version>
#         -DCOMPONENTS=kernels,actors,torch -DCAF_VERSION=<version>
#         -DSHARED=<bool> -P unpack_debs.cmake

set(kernels_package libsyncnorm-kernels-dev)
set(kernels_depends "libfmt-dev \\(>= [0-9.]+\\)" "libhwy-dev \\(>= [0-9.]+\\)")
set(kernels_holds
    usr/include/syncnorm/moments.hpp
    "usr/lib/.*libsyncnorm_kernels\\."
    "usr/lib/.*pkgconfig/syncnorm-kernels\\.pc"
    "usr/lib/.*cmake/syncnorm/syncnorm-config\\.cmake"
    "usr/lib/.*cmake/syncnorm/syncnorm-kernels-targets\\.cmake")
set(kernels_lacks sync_master "nn/" libsyncnorm_actors)

string(REGEX MATCH "^[0-9]+" caf_major "${CAF_VERSION}")
set(actors_package libsyncnorm-dev)
set(actors_depends "libsyncnorm-kernels-dev \\(= ${VERSION}\\)"
                   "libcaf-dev \\(>= ${caf_major}" "libcaf-dev \\(<< "
                   "libfmt-dev" "libssl-dev")
set(actors_holds
    usr/include/syncnorm/actors.hpp usr/include/syncnorm/sync_master.hpp
    "usr/lib/.*libsyncnorm_actors\\."
    "usr/lib/.*pkgconfig/syncnorm-actors\\.pc" "usr/lib/.*FindCAF\\.cmake")
set(actors_lacks moments.hpp "nn/" libsyncnorm_kernels)

set(torch_package libsyncnorm-torch-dev)
set(torch_depends "libsyncnorm-dev \\(= ${VERSION}\\)" "libtorch-dev \\(>= ")
set(torch_holds usr/include/syncnorm/nn/convert_model.hpp
                "usr/lib/.*libsyncnorm_torch\\.")
set(torch_lacks sync_master moments.hpp)

function(run_dpkg out)
  execute_process(
    COMMAND dpkg-deb ${ARGN}
    OUTPUT_VARIABLE text
    COMMAND_ERROR_IS_FATAL ANY)
  set(${out}
      "${text}"
      PARENT_SCOPE)
endfunction()

function(expect what text pattern)
  if(NOT text MATCHES "${pattern}")
    message(FATAL_ERROR "${what}: expected ${pattern}, got:\n${text}")
  endif()
endfunction()

file(REMOVE_RECURSE "${ROOT}")
string(REPLACE "," ";" components "${COMPONENTS}")
foreach(component IN LISTS components)
  set(name ${${component}_package})
  file(GLOB deb "${DEBS}/${name}_${VERSION}_*.deb")
  list(LENGTH deb found)
  if(NOT found EQUAL 1)
    message(FATAL_ERROR "expected one package ${name} ${VERSION}, got: ${deb}")
  endif()
  run_dpkg(package --field "${deb}" Package)
  expect("package name" "${package}" "^${name}\n")
  run_dpkg(depends --field "${deb}" Depends)
  foreach(pattern IN LISTS ${component}_depends)
    expect("${name} depends" "${depends}" "${pattern}")
  endforeach()
  if(SHARED)
    expect("${name} depends" "${depends}" "libc6")
  endif()
  run_dpkg(contents --contents "${deb}")
  foreach(pattern IN LISTS ${component}_holds)
    expect("${name} contents" "${contents}" "${pattern}")
  endforeach()
  expect("${name} contents" "${contents}" "usr/share/doc/${name}/copyright")
  foreach(pattern IN LISTS ${component}_lacks ITEMS LICENSE)
    if(contents MATCHES "${pattern}")
      message(FATAL_ERROR "${name} contains ${CMAKE_MATCH_0}:\n${contents}")
    endif()
  endforeach()
  run_dpkg(nothing --extract "${deb}" "${ROOT}")
  string(STRIP "${depends}" depends)
  message(STATUS "${name}: ${depends}")
endforeach()
