#include "controller/cli/manifest.h"

#include "common/base/files.h"
#include "common/json/document.h"

namespace tilewright {

Result<Manifest> read_manifest(const std::filesystem::path& file) {
  const bool is_input = file == "-";
  Result<std::string> text =
      read_file(is_input ? "/dev/stdin" : file, kMaxManifestBytes, ExitCode::kManifest);
  if (!text.ok()) return text.error();
  return Manifest{is_input ? "standard input" : file.string(), std::move(text).value()};
}

}  // namespace tilewright
