// The manifests that a subcommand reads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace tilewright {

struct Manifest {
  std::string file;  // as messages name it
  std::string text;
};

// Reads the file; "-" is standard input, as in kubectl. Error: kManifest.
Result<Manifest> read_manifest(const std::filesystem::path& file);

}  // namespace tilewright
