// VOLUME:relative/path, how a manifest names files, and where that is in a pod and on this machine.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

struct TrainerPath {
  std::string volume;
  std::string relative;  // without '..' and not absolute; may be empty: the volume itself

  bool operator==(const TrainerPath&) const = default;
};

// The Error's message is "found ..., expected ...". Variables are not expanded here.
Result<TrainerPath> parse_trainer_path(std::string_view text);

// /mnt/tilewright/VOLUME/relative/path
std::string pod_path(const TrainerPath& path);
// The folder of the volume's `local:` side, taken relative to `manifest_folder`, and relative/path
// in it; absolute and in normal form. The volume must exist and have a local side.
std::string local_path(const TrainJob& job, const std::filesystem::path& manifest_folder,
                       const TrainerPath& path);

}  // namespace tilewright::api
