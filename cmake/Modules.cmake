# Settings and functions for all modules: one static library per module, warnings as errors, no implicit FMA
# contraction.

# Settings that hold for every target of the project.
add_library(tilewright_settings INTERFACE)
# With sanitizers GCC 12 reports false overflows in instrumented code. Every file is also compiled without them.
set(warnings_as_errors -Werror)
if(TILEWRIGHT_SANITIZE)
  set(warnings_as_errors)
endif()
target_compile_options(tilewright_settings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor ${warnings_as_errors}
  -ffp-contract=off  # fuse a*b+c only where the source does: results must not depend on the compiler
  -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # a garbage collection at 1 GB instead of 128 MB: 5 % less compile time
  target_compile_options(tilewright_settings INTERFACE --param=ggc-min-heapsize=1000000)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # only for fuzzing: it does not know some of GCC's warnings and pragmas
  target_compile_options(tilewright_settings INTERFACE -Wno-unknown-warning-option -Wno-unknown-pragmas)
endif()
target_include_directories(tilewright_settings INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_link_libraries(tilewright_settings INTERFACE Threads::Threads)
# Hardening; tests/integration/hardening_test.cpp checks the programs for each property. The start files and libraries of
# Debian 12 are not marked for CET, so no kernel enforces it: -fcf-protection only makes the project's code ready for it.
target_compile_options(tilewright_settings INTERFACE
  -fPIE -fstack-protector-strong -fstack-clash-protection -fcf-protection=full)
target_link_options(tilewright_settings INTERFACE -pie -Wl,-z,relro,-z,now,-z,noexecstack)
# The sanitizers check more than the fortified libc functions, which they would not see. libc's headers reject fortification
# without optimisation. -U: some distributions set another level.
if(NOT TILEWRIGHT_SANITIZE)
  target_compile_options(tilewright_settings INTERFACE
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
endif()
if(TILEWRIGHT_SANITIZE)
  add_compile_options(-fsanitize=${TILEWRIGHT_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(tilewright_settings INTERFACE -fsanitize=${TILEWRIGHT_SANITIZE})
endif()

# Precompiled headers: the third-party and standard headers that take most of the compile time. Sources must still
# include what they use, because clang-tidy compiles without precompiled headers.
option(TILEWRIGHT_PCH "Precompile third-party headers" ON)
add_library(tilewright_pch OBJECT ${CMAKE_CURRENT_LIST_DIR}/pch.cpp)
target_link_libraries(tilewright_pch PRIVATE tilewright_settings fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json)
if(TILEWRIGHT_PCH)
  target_precompile_headers(tilewright_pch PRIVATE <nlohmann/json.hpp> <fmt/format.h> <fmt/ranges.h> <spdlog/spdlog.h>
    <algorithm> <chrono> <filesystem> <functional> <map> <memory> <optional> <set> <string> <thread> <vector>)
endif()

# `make` and the sanitizer presets compile all sources of a module or test program as one, which takes two thirds of the time.
# NO_UNITY: for modules whose sources use the same names in their unnamed namespaces.
option(TILEWRIGHT_UNITY "Compile the sources of a target as one" OFF)
function(tilewright_use_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TILEWRIGHT_UNITY} UNITY_BUILD_BATCH_SIZE 0)
endfunction()

# Tests are compiled without optimization (and therefore without fortified libc functions), because most of their time is
# spent in the code under test, which is compiled with the flags of the programs.
set(TILEWRIGHT_TEST_OPTIONS -O0 -U_FORTIFY_SOURCE)
set(TILEWRIGHT_OPTIMIZED_TEST_OPTIONS -O1) # for tests that compute
if(TILEWRIGHT_SANITIZE MATCHES undefined) # the code under test is checked; a third of the tests' compile time
  list(APPEND TILEWRIGHT_TEST_OPTIONS -fno-sanitize=undefined)
endif()
if(TILEWRIGHT_TESTS)
  add_library(tilewright_test_pch OBJECT ${CMAKE_CURRENT_LIST_DIR}/pch.cpp)
  target_link_libraries(tilewright_test_pch PRIVATE tilewright_settings GTest::gtest GTest::gmock
    nlohmann_json::nlohmann_json fmt::fmt)
  target_compile_options(tilewright_test_pch PRIVATE ${TILEWRIGHT_TEST_OPTIONS})
  if(TILEWRIGHT_PCH)
    target_precompile_headers(tilewright_test_pch PRIVATE <gtest/gtest.h> <gmock/gmock.h> <nlohmann/json.hpp>
      <fmt/format.h> <algorithm> <chrono> <filesystem> <functional> <map> <memory> <optional> <set> <string> <thread>
      <vector>)
  endif()
endif()

# tilewright_use_pch(TARGET [PCH_TARGET]): for a target whose sources all have the default flags.
function(tilewright_use_pch target)
  if(TILEWRIGHT_PCH)
    set(pch ${ARGN})
    if(NOT pch)
      set(pch tilewright_pch)
    endif()
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()

# tilewright_module(NAME SOURCES a.cpp ... DEPENDS base ... LIBRARIES fmt::fmt ...): defines the static library
# tilewright::NAME of the current directory. DEPENDS lists modules, LIBRARIES lists packages. NO_PCH, NO_UNITY: see above.
function(tilewright_module name)
  cmake_parse_arguments(MODULE "NO_PCH;NO_UNITY" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  set(kind PUBLIC)
  if(MODULE_SOURCES)
    add_library(tilewright_${name} STATIC ${MODULE_SOURCES})
    if(NOT MODULE_NO_PCH)
      tilewright_use_pch(tilewright_${name})
    endif()
    if(NOT MODULE_NO_UNITY)
      tilewright_use_unity(tilewright_${name})
    endif()
  else()
    set(kind INTERFACE)
    add_library(tilewright_${name} INTERFACE)
  endif()
  add_library(tilewright::${name} ALIAS tilewright_${name})
  target_link_libraries(tilewright_${name} ${kind} tilewright_settings ${MODULE_LIBRARIES})
  foreach(other IN LISTS MODULE_DEPENDS)
    target_link_libraries(tilewright_${name} ${kind} tilewright::${other})
  endforeach()
  set_property(GLOBAL PROPERTY tilewright_target_of_${CMAKE_CURRENT_SOURCE_DIR} tilewright_${name})
  set_property(GLOBAL PROPERTY tilewright_path_of_tilewright_${name} ${CMAKE_CURRENT_SOURCE_DIR})
endfunction()

# tilewright_write_dependencies(FILE MODULE...): writes a line "a/b: c/d e/f" for each module, with the modules that its
# target links. tests/unit/dependencies_test.cpp reads the file.
function(tilewright_write_dependencies file)
  set(text "")
  foreach(module IN LISTS ARGN)
    get_property(target GLOBAL PROPERTY tilewright_target_of_${PROJECT_SOURCE_DIR}/${module})
    get_target_property(libraries ${target} INTERFACE_LINK_LIBRARIES)
    string(APPEND text "${module}:")
    foreach(library IN LISTS libraries)
      if(library MATCHES "^tilewright::")
        get_target_property(aliased ${library} ALIASED_TARGET)
        get_property(folder GLOBAL PROPERTY tilewright_path_of_${aliased})
        if(folder)
          file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${folder})
          string(APPEND text " ${path}")
        endif()
      endif()
    endforeach()
    string(APPEND text "\n")
  endforeach()
  file(GENERATE OUTPUT ${file} CONTENT "${text}")
endfunction()

# tilewright_program(NAME main.cpp DEPENDS module ...): an installed executable.
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

# What `make test` runs: every test program but those with the labels e2e, hosts and peers, which have commands of their own.
if(TILEWRIGHT_TESTS)
  add_custom_target(tests)
endif()

# tilewright_tests(NAME LABEL [OPTIMIZED] [ALONE] SOURCES ... DEPENDS module ... TOGETHER filter ...): a GoogleTest program.
# ALONE: no other test runs at the same time; TOGETHER: this holds for all its tests but those of the filters. A program of
# unit or golden tests is one ctest test, because 3,000 processes would take a minute to start; otherwise each of its tests
# is one.
function(tilewright_tests name label)
  cmake_parse_arguments(TESTS "OPTIMIZED;ALONE" "" "SOURCES;DEPENDS;LIBRARIES;TOGETHER" ${ARGN})
  include(GoogleTest)
  add_executable(${name} ${TESTS_SOURCES})
  if(TESTS_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${TILEWRIGHT_OPTIMIZED_TEST_OPTIONS})
  else()
    target_compile_options(${name} PRIVATE ${TILEWRIGHT_TEST_OPTIONS})
    tilewright_use_pch(${name} tilewright_test_pch)
  endif()
  tilewright_use_unity(${name})
  target_link_libraries(${name} PRIVATE tilewright_settings tilewright::test_support GTest::gtest GTest::gmock
    GTest::gtest_main fmt::fmt nlohmann_json::nlohmann_json ${TESTS_LIBRARIES})
  foreach(other IN LISTS TESTS_DEPENDS)
    target_link_libraries(${name} PRIVATE tilewright::${other})
  endforeach()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  set(timeout 300)
  if(label STREQUAL e2e OR label STREQUAL hosts)
    set(timeout 900)  # whole trainings, by one core at worst
  else()
    add_dependencies(tests ${name})
  endif()
  if(label MATCHES "^(unit|golden)$")
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout})
  else()  # COST: long tests first
    set(properties LABELS ${label} TIMEOUT ${timeout} COST 10)
    list(JOIN TESTS_TOGETHER : together)
    if(together)
      gtest_discover_tests(${name} TEST_FILTER ${together} PROPERTIES ${properties} DISCOVERY_TIMEOUT 60)
      set(others TEST_FILTER -${together})
    endif()
    if(TESTS_ALONE OR together)
      list(APPEND properties RUN_SERIAL TRUE)
    endif()
    gtest_discover_tests(${name} ${others} PROPERTIES ${properties} DISCOVERY_TIMEOUT 60)
  endif()
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/Commit.cmake)  # tilewright::commit, for the programs
