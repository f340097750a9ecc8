# graphc_library(NAME FILE.py:FUNCTION... [STATIC] [OPTIONS --cpu v3 ...])
#
# Declares the imported library NAME, which `graphc compile` makes from the functions: libNAME.so (or
# libNAME.a), libNAME.h and libNAME.hpp in the build folder. It is made again when the Python files
# change. Link with target_link_libraries(program PRIVATE NAME).
find_program(GRAPHC graphc REQUIRED DOC "the graphc command")

function(graphc_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "STATIC" "" "OPTIONS")
  set(functions)
  set(sources)
  foreach(function IN LISTS arg_UNPARSED_ARGUMENTS)
    get_filename_component(function ${function} ABSOLUTE)
    list(APPEND functions ${function})
    string(REGEX REPLACE ":[^:/]*$" "" source ${function})
    list(APPEND sources ${source})
  endforeach()
  list(REMOVE_DUPLICATES sources)

  set(type SHARED)
  set(suffix .so)
  if(arg_STATIC)
    set(type STATIC)
    set(suffix .a)
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name})
  set(base ${folder}/lib${name})
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(
    OUTPUT ${base}${suffix} ${base}.h ${base}.hpp
    COMMAND ${GRAPHC} compile ${functions} -o ${base}${suffix} --kind hpp ${arg_OPTIONS}
    DEPENDS ${sources}
    COMMENT "graphc compile: lib${name}${suffix}"
    VERBATIM)
  add_custom_target(${name}_files DEPENDS ${base}${suffix} ${base}.h ${base}.hpp)

  add_library(${name} ${type} IMPORTED GLOBAL)
  add_dependencies(${name} ${name}_files)
  set_target_properties(${name} PROPERTIES
    IMPORTED_LOCATION ${base}${suffix}
    INTERFACE_INCLUDE_DIRECTORIES ${folder})
  if(arg_STATIC)
    find_package(Threads REQUIRED)
    target_link_libraries(${name} INTERFACE Threads::Threads)
  endif()
endfunction()
