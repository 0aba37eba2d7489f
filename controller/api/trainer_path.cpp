#include "controller/api/trainer_path.h"

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/contract/ports.h"

namespace tilewright::api {

Result<TrainerPath> parse_trainer_path(std::string_view text) {
  constexpr std::size_t kLongest = 4000;  // with the volume's folder before it, still a path
  const auto refuse = [&](std::string_view expected) {
    return Error{ExitCode::kManifest,
                 fmt::format("found {}, expected {}", text.substr(0, 100), expected)};
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return refuse("VOLUME:relative/path");
  TrainerPath path{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
  if (path.relative.starts_with('/')) return refuse("a path relative to the volume");
  if (text.size() > kLongest || text.find('\0') != std::string_view::npos) {
    return refuse("a path of up to 4000 bytes");
  }
  for (const std::filesystem::path& part : std::filesystem::path(path.relative)) {
    if (part == "..") return refuse("a path that stays in its volume, without '..'");
  }
  return path;
}

std::string pod_path(const TrainerPath& path) {
  std::string folder = fmt::format("{}/{}", kVolumeRoot, path.volume);
  return path.relative.empty() ? folder : fmt::format("{}/{}", folder, path.relative);
}

std::string local_path(const TrainJob& job, const std::filesystem::path& manifest_folder,
                       const TrainerPath& path) {
  for (const Volume& volume : job.spec.volumes) {
    if (volume.name != path.volume) continue;
    TW_CHECK(volume.local.has_value(), "volume {} has no local side", volume.name);
    const auto folder = std::filesystem::absolute(manifest_folder) / *volume.local;
    return (path.relative.empty() ? folder : folder / path.relative).lexically_normal().string();
  }
  TW_CHECK(false, "there is no volume {}", path.volume);
  return {};
}

}  // namespace tilewright::api
