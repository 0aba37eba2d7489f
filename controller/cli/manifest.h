// The manifests that a subcommand reads.
#pragma once

#include <filesystem>

#include "common/base/files.h"
#include "common/json/tree_limits.h"

namespace tilewright {

// Reads the file; "-" is standard input, as in kubectl. Error: kManifest.
inline Result<Input> read_manifest(const std::filesystem::path& file) {
  return read_input(file, kMaxManifestBytes, ExitCode::kManifest);
}

}  // namespace tilewright
