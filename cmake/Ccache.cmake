# Compiles through ccache if it is installed. All checkouts and build directories share results: paths are relative to
# the source directory and the working directory is not hashed.
option(TILEWRIGHT_CCACHE "Compile through ccache if it is installed" ON)
find_program(TILEWRIGHT_CCACHE_PROGRAM ccache)
mark_as_advanced(TILEWRIGHT_CCACHE_PROGRAM)
if(TILEWRIGHT_CCACHE AND TILEWRIGHT_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Sloppiness: ccache's manual requires the first two for precompiled headers. The headers of a fresh clone are newer than
  # ccache trusts by default.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TILEWRIGHT_CCACHE_PROGRAM})
endif()
