# Sourced in the checkout's directory. Sets version; commit, empty without git; and epoch, the date of the bills of
# materials in seconds since 1970: $SOURCE_DATE_EPOCH or that of the commit, not of the build.
# shellcheck shell=bash disable=SC2034  # used by the files that source it
version=$(sed -n 's/^project(tilewright VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
commit=$(git describe --always --dirty --abbrev=12 2>/dev/null || true)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
