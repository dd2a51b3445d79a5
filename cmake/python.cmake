# What scikit-build-core puts into the Python package: the two libraries under their sonames, since a wheel holds no links.
foreach(library traincore_library traincore_check)
  install(FILES $<TARGET_FILE:${library}> DESTINATION lib RENAME $<TARGET_SONAME_FILE_NAME:${library}> COMPONENT python)
endforeach()
