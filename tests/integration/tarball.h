// Packs the worker's tarball and unpacks it in a directory.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/run_command.h"

namespace tilewright::testing {

inline constexpr std::chrono::seconds kTarballTimeout{600};

// Why no tarball can be packed here; empty if it can.
inline std::string missing_for_tarball() {
  return std::filesystem::exists("/usr/bin/dpkg-query") ? "" : "the tarball is packed on Debian";
}

// The only directory of the tarball, in `root`, which is created. Level 0: the content matters
// here, not its size.
inline std::filesystem::path unpack_tarball(const std::filesystem::path& root) {
  std::filesystem::create_directory(root);
  const CommandResult packed = run_script(
      "\"$SOURCE/docker/tarball\" \"$WORKER\" \"$R.packed\";"
      "tar -xJf \"$R.packed\"/*.tar.xz -C \"$R\"; rm -r \"$R.packed\"",
      {{"SOURCE", source_dir()},
       {"WORKER", program("tilewright-worker")},
       {"R", root},
       {"XZ_LEVEL", "-0"}},
      kTarballTimeout);
  EXPECT_EQ(packed.exit_code, 0) << packed.output;
  std::filesystem::path found;
  for (const auto& entry : std::filesystem::directory_iterator(root)) found = entry.path();
  return found;
}

}  // namespace tilewright::testing
