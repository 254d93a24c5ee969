# Run by cpack between installing and packing: puts the license, which an
# installation has once, where Debian wants it: in each package, under the
# package's name.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(usr "${CPACK_TEMPORARY_DIRECTORY}/${component}/usr")
  file(REMOVE_RECURSE "${usr}/share/doc")
  set(doc "${usr}/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}")
  file(MAKE_DIRECTORY "${doc}")
  file(COPY_FILE "${CPACK_RESOURCE_FILE_LICENSE}" "${doc}/copyright")
endforeach()
