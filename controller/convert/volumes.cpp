#include "controller/convert/volumes.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/base/printable.h"
#include "common/json/members.h"
#include "common/launch/unknown_value.h"
#include "controller/api/volume_sources.h"

namespace tilewright::convert {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

// The absolute path of a path on the command line.
std::string Volumes::resolve(const std::string& path) const {
  fs::path directory = source_.training.command.directory;
  if (!directory.is_absolute()) {
    directory = fs::path(string_member(source_.container.json(), "workingDir")) / directory;
  }
  return (directory / path).lexically_normal().string();
}

// As os.path.expanduser() of Python does, with which transformers reads output_dir.
Result<std::string> Volumes::expand_user(const std::string& path) const {
  if (!path.starts_with('~')) return path;
  const auto refuse = [&](std::string_view expected) {
    return Error{ExitCode::kManifest,
                 fmt::format("found {}, expected {}", excerpt(path), expected)};
  };
  if (path.size() > 1 && path[1] != '/') {
    return refuse("a path without the home directory of another user");
  }
  const auto& exported = source_.training.command.variables;
  const auto& given = source_.container.environment();
  const auto home_in = [](const auto& variables) {
    const auto found = variables.find("HOME");
    return found == variables.end() ? std::string() : found->second;
  };
  const std::string home = exported.contains("HOME") ? home_in(exported) : home_in(given);
  if (!home.starts_with('/')) {
    return refuse("a path without ~ or a plain value of HOME in env");
  }
  return home + path.substr(1);
}

std::string Volumes::trainer_path(const std::string& path, const std::string& flag) {
  const std::string field = source_.container.path_of_flag(flag);
  const Result<std::string> expanded =
      flag == "output_dir" ? expand_user(path) : Result<std::string>(path);
  if (!expanded.ok()) {
    draft_.error(field, fmt::format("--{}: {}", flag, expanded.error().message));
    return "";
  }
  const std::string absolute = resolve(*expanded);
  if (const std::string unknown = launch::unknown_variable(absolute); !unknown.empty()) {
    draft_.error(field, fmt::format("--{}: {}", flag, launch::refuse_unknown(unknown)));
    return "";
  }
  const auto found = source_.container.place_of(absolute);
  if (!found.ok()) {
    draft_.error(field,
                 fmt::format("--{}: found {} {}", flag, excerpt(path), found.error().message));
    return "";
  }
  const auto note_lost_output = [&](const std::string& where, std::string_view instead_of) {
    draft_.note_lost_output(
        field, fmt::format("--output_dir {}: on {}, so the trained model ends with its pod and no "
                           "restart finds a checkpoint; name a persistentVolumeClaim instead{}",
                           path, where, instead_of));
  };
  if (const auto& place = *found; place && use(place->volume)) {
    std::string unused;
    const std::string_view temporary = api::temporary_source(*find_in_pod(place->volume, unused));
    if (flag == "output_dir" && !temporary.empty()) {
      note_lost_output(fmt::format("the {} {}", temporary, place->volume), "");
    }
    return place->trainer_path();
  }
  if (flag == "output_dir") {
    // As in the PyTorchJob, the directory ends with its pod.
    std::string volume = "scratch";
    std::string unused;
    for (int n = 2; find_in_pod(volume, unused) != nullptr; ++n) {
      volume = fmt::format("scratch-{}", n);
    }
    list_.push_back({{"name", volume}, {"emptyDir", ordered_json::object()}});
    note_lost_output("no volume", " of the emptyDir");
    std::string relative = fs::path(absolute).relative_path().string();
    while (relative.ends_with('/')) relative.pop_back();
    return volume + ":" + (relative.empty() || relative == "." ? "output" : relative);
  }
  draft_.error(
      field, fmt::format("--{}: found {}, which is on no volume of the pod, expected a path below "
                         "a mountPath of volumeMounts",
                         flag, excerpt(path)));
  return "";
}

std::string Volumes::path_on_volume(const std::string& path) const {
  const auto found = source_.container.place_of(resolve(path));
  return found.ok() && *found ? (*found)->trainer_path() : "";
}

const json* Volumes::find_in_pod(const std::string& name, std::string& path) const {
  const json& list = member(source_.pod(), "volumes");
  for (std::size_t i = 0; list.is_array() && i < list.size(); ++i) {
    if (string_member(list[i], "name") != name) continue;
    path = element_path(source_.pod_path("volumes"), i);
    return &list[i];
  }
  return nullptr;
}

bool Volumes::uses(const std::string& name) const {
  return std::ranges::any_of(list_,
                             [&](const ordered_json& known) { return known["name"] == name; });
}

bool Volumes::use(const std::string& name) {
  if (uses(name)) return true;
  std::string path;
  const json* volume = find_in_pod(name, path);
  if (volume == nullptr) return false;
  draft_.made_of(element_path("spec.volumes", list_.size()), path);
  ordered_json copy = {{"name", name}};
  for (const auto& member : volume->items()) {
    if (member.key() != "name") copy[member.key()] = member.value();
  }
  list_.push_back(std::move(copy));
  return true;
}

}  // namespace tilewright::convert
