# The commit from which a program is built. Every build runs `git describe` and rewrites commit.cpp only if the output
# changes, so a new commit relinks the programs and recompiles no module.
#
# When the project includes this file, it defines tilewright::commit (common/base/commit.h). When run as a script
# (cmake -DSOURCE_DIR=... -DOUTPUT=... -P Commit.cmake), it writes commit.cpp.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "")
  find_program(GIT git)
  if(GIT AND EXISTS ${SOURCE_DIR}/.git)
    execute_process(COMMAND ${GIT} --no-optional-locks describe --always --dirty --abbrev=12
      WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(commit STREQUAL "")
    set(commit "$ENV{TILEWRIGHT_COMMIT}") # for sources without a git repository, as in image builds
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
  COMMENT "Reading the commit from git")
add_library(tilewright_commit STATIC ${commit_source})
add_dependencies(tilewright_commit tilewright_commit_source)
target_link_libraries(tilewright_commit PRIVATE tilewright_settings)
add_library(tilewright::commit ALIAS tilewright_commit)
