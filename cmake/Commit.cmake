# The commit a program was built from. git is asked at every build, and one small file is written
# anew only when its answer changes: a commit relinks the programs and compiles nothing else.
#
# Included by the project it makes tilewright::commit (common/base/commit.h); run as a script
# (cmake -DSOURCE_DIR=... -DOUTPUT=... -P Commit.cmake) it writes that file.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "")
  find_program(GIT git)
  if(GIT AND EXISTS ${SOURCE_DIR}/.git)
    execute_process(COMMAND ${GIT} --no-optional-locks describe --always --dirty --abbrev=12
      WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(commit STREQUAL "")
    set(commit "$ENV{TILEWRIGHT_COMMIT}") # where the sources come without their repository, as into an image's build
  endif()
  if(NOT commit MATCHES "^[0-9A-Za-z._-]+$")
    set(commit unknown)
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
"#include \"common/base/commit.h\"
namespace tilewright {
const char* const kCommit = \"${commit}\";
}  // namespace tilewright
")
  return()
endif()

set(commit_source ${PROJECT_BINARY_DIR}/generated/common/base/commit.cpp)
add_custom_target(tilewright_commit_source
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DOUTPUT=${commit_source}
    -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${commit_source}
  COMMENT "Asking git for the commit")
add_library(tilewright_commit STATIC ${commit_source})
add_dependencies(tilewright_commit tilewright_commit_source)
target_link_libraries(tilewright_commit PRIVATE tilewright_settings)
add_library(tilewright::commit ALIAS tilewright_commit)
