# As that of CAF 1.x.
set(CAF_VERSION 1.1.0)
foreach(component IN ITEMS core io)
  if(NOT TARGET CAF::${component})
    add_library(CAF::${component} INTERFACE IMPORTED)
  endif()
endforeach()
