#include "controller/cli/manifest.h"

#include "common/base/files.h"
#include "common/json/document.h"

namespace tilewright {

Result<Manifest> read_manifest(const std::filesystem::path& file) {
  const bool is_input = file == "-";
  Result<std::string> text = is_input ? read_standard_input(kMaxManifestBytes, ExitCode::kManifest)
                                      : read_file(file, kMaxManifestBytes, ExitCode::kManifest);
  if (!text.ok()) return text.error();
  return Manifest{is_input ? kStandardInput : file.string(), std::move(text).value()};
}

}  // namespace tilewright
