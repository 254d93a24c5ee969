# What cpack runs between installing and packing: the license, which an
# installation has once, goes where Debian wants it, to each package under its
# own name.
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
