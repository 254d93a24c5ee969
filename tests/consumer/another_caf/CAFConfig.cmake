# As that of a CAF to come.
set(CAF_VERSION 99.0.0)
foreach(component IN ITEMS core io openssl)
  if(NOT TARGET CAF::${component})
    add_library(CAF::${component} INTERFACE IMPORTED)
  endif()
endforeach()
