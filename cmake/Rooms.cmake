# What every room shares: one static library a room, warnings as errors, no implicit FMA contraction.

# Settings that hold for every target of the project.
add_library(tilewright_settings INTERFACE)
target_compile_options(tilewright_settings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
  -ffp-contract=off  # a*b+c is fused only where the source says so: results may not depend on the compiler
  -fno-omit-frame-pointer)
target_include_directories(tilewright_settings INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_link_libraries(tilewright_settings INTERFACE Threads::Threads)
if(TILEWRIGHT_SANITIZE)
  target_compile_options(tilewright_settings INTERFACE -fsanitize=${TILEWRIGHT_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(tilewright_settings INTERFACE -fsanitize=${TILEWRIGHT_SANITIZE})
endif()

# tilewright_room(NAME SOURCES a.cpp ... DEPENDS base ... LIBRARIES fmt::fmt ...)
# Makes the static library tilewright::NAME of the current folder. DEPENDS names rooms, LIBRARIES packages.
function(tilewright_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  set(kind PUBLIC)
  if(ROOM_SOURCES)
    add_library(tilewright_${name} STATIC ${ROOM_SOURCES})
  else()
    set(kind INTERFACE)
    add_library(tilewright_${name} INTERFACE)
  endif()
  add_library(tilewright::${name} ALIAS tilewright_${name})
  target_link_libraries(tilewright_${name} ${kind} tilewright_settings ${ROOM_LIBRARIES})
  foreach(other IN LISTS ROOM_DEPENDS)
    target_link_libraries(tilewright_${name} ${kind} tilewright::${other})
  endforeach()
endfunction()

# tilewright_program(NAME main.cpp DEPENDS room ...): an installed executable.
function(tilewright_program name main)
  cmake_parse_arguments(PROGRAM "" "" "DEPENDS" ${ARGN})
  add_executable(${name} ${main})
  target_link_libraries(${name} PRIVATE tilewright_settings)
  foreach(other IN LISTS PROGRAM_DEPENDS)
    target_link_libraries(${name} PRIVATE tilewright::${other})
  endforeach()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# tilewright_tests(NAME LABEL SOURCES ... DEPENDS room ...): a GoogleTest program, each test known to ctest.
function(tilewright_tests name label)
  cmake_parse_arguments(TESTS "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  include(GoogleTest)
  add_executable(${name} ${TESTS_SOURCES})
  target_link_libraries(${name} PRIVATE tilewright_settings tilewright::test_support GTest::gtest GTest::gmock
    GTest::gtest_main ${TESTS_LIBRARIES})
  foreach(other IN LISTS TESTS_DEPENDS)
    target_link_libraries(${name} PRIVATE tilewright::${other})
  endforeach()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  gtest_discover_tests(${name} PROPERTIES LABELS ${label} TIMEOUT 300 DISCOVERY_TIMEOUT 60)
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/Commit.cmake)  # tilewright::commit, for the programs
