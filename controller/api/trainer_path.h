// Paths of the form VOLUME:relative/path, and their location in a pod and on this machine.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

// What a path of spec.trainer may be, for messages.
inline constexpr const char* kExpectedPath = "VOLUME:relative/path";
inline constexpr const char* kExpectedNameOrPath =
    "VOLUME:relative/path or a name on the hub such as google-bert/bert-base-uncased";

struct TrainerPath {
  std::string volume;
  std::string relative;  // relative, without '..'; empty: the volume itself

  bool operator==(const TrainerPath&) const = default;
};

// Whether a value that may be VOLUME:relative/path or a name on the hub is a path: a name has no
// colon.
bool is_trainer_path(std::string_view text);

// The Error's message is "found ..., expected ...". Variables are not expanded here.
Result<TrainerPath> parse_trainer_path(std::string_view text);

// /mnt/tilewright/VOLUME/relative/path
std::string pod_path(const TrainerPath& path);
// The absolute, normalized path below the `local` directory of the volume, which is relative to
// `manifest_directory` unless it begins with / or with ~/, the home directory of the user. The
// volume must exist and have a local directory.
std::string local_path(const TrainJob& job, const std::filesystem::path& manifest_directory,
                       const TrainerPath& path);

}  // namespace tilewright::api
