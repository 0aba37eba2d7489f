#include "controller/api/trainer_path.h"

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/pod_paths.h"

namespace tilewright::api {

bool is_trainer_path(std::string_view text) { return text.find(':') != std::string_view::npos; }

Result<TrainerPath> parse_trainer_path(std::string_view text) {
  // With the directory of the volume in front, a path stays below PATH_MAX (4096).
  constexpr std::size_t kMaxPathBytes = 4000;
  const auto invalid = [&](std::string_view expected) {
    return Error{ExitCode::kManifest,
                 fmt::format("found {}, expected {}", excerpt(text), expected)};
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return invalid("VOLUME:relative/path");
  TrainerPath path{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
  if (path.relative.starts_with('/')) return invalid("a path relative to the volume");
  if (text.size() > kMaxPathBytes || text.find('\0') != std::string_view::npos) {
    return invalid("a path of up to 4000 bytes");
  }
  for (const std::filesystem::path& part : std::filesystem::path(path.relative)) {
    if (part == "..") return invalid("a path that stays in its volume, without '..'");
  }
  return path;
}

std::string pod_path(const TrainerPath& path) {
  std::string directory = fmt::format("{}/{}", kVolumeRoot, path.volume);
  return path.relative.empty() ? directory : fmt::format("{}/{}", directory, path.relative);
}

std::string local_path(const TrainJob& job, const std::filesystem::path& manifest_directory,
                       const TrainerPath& path) {
  for (const Volume& volume : job.spec.volumes) {
    if (volume.name != path.volume) continue;
    TW_CHECK(volume.local.has_value(), "volume {} has no local directory", volume.name);
    const auto directory = std::filesystem::absolute(manifest_directory) /
                           expand_home(*volume.local, environment_variable);
    return (path.relative.empty() ? directory : directory / path.relative)
        .lexically_normal()
        .string();
  }
  TW_CHECK(false, "there is no volume {}", path.volume);
  return {};
}

}  // namespace tilewright::api
