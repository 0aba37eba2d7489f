// The checks of validate(), one file for each part of a manifest.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/json/document.h"
#include "common/json/members.h"
#include "controller/api/findings.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

// Collects errors and warnings, with the line of each field.
class FindingCollector {
 public:
  explicit FindingCollector(const Positions& positions) : positions_(positions) {}

  void error(const std::string& path, std::string message) {
    add_error(findings_.errors, {path, positions_.line_of(path), std::move(message)});
  }
  void warn(const std::string& path, std::string message) {
    add_error(findings_.warnings, {path, positions_.line_of(path), std::move(message)});
  }
  // "found 0, expected an integer from 1 to 1000". An absent value is no error.
  void require_range(const std::string& path, const std::optional<std::int64_t>& value,
                     std::int64_t minimum, std::int64_t maximum) {
    if (!value || (*value >= minimum && *value <= maximum)) return;
    error(path,
          fmt::format("found {}, expected an integer from {} to {}", *value, minimum, maximum));
  }
  Findings take() { return std::move(findings_); }

 private:
  const Positions& positions_;
  Findings findings_;
};

// Reports that the environment variable at `path` is set by the runtime.
void report_reserved_variable(const std::string& name, const std::string& path,
                              FindingCollector& collector);

// "found true, which restricted Pod Security forbids, expected false".
void report_pod_security_violation(FindingCollector& collector, const std::string& path,
                                   const std::string& found, std::string_view expected);

inline constexpr const char* kOperatorVolumePrefix = "tilewright-";

// Rejects a volume name with the prefix of the operator's volumes.
void check_reserved_volume_name(const std::string& name, const std::string& path,
                                FindingCollector& collector);
// Rejects a volume for /dev/shm.
void check_shared_memory_volume(const std::string& name, const nlohmann::json& source,
                                const std::string& path, FindingCollector& collector);
// Rejects volume sources that the restricted Pod Security Standard forbids.
void check_volume_sources(const nlohmann::json& volume, const std::string& path,
                          FindingCollector& collector);

// The excerpt of a value; "nothing" for an empty string.
std::string describe_value(std::string_view text);

// nullptr if the job has no such volume.
const Volume* find_volume(const TrainJob& job, std::string_view name);

inline constexpr const char* kPodTemplatePath = "spec.worker.podTemplate";
inline constexpr const char* kPodSpecPath = "spec.worker.podTemplate.spec";

// Calls `visit` with each container of a pod's spec at `path`, its path and the name of its list.
// Skips what is not an object.
template <typename Visit>
void each_container(const nlohmann::json& pod_spec, const std::string& path, const Visit& visit) {
  for (const char* list : {"containers", "initContainers"}) {
    const nlohmann::json& containers = member(pod_spec, list);
    for (std::size_t i = 0; containers.is_array() && i < containers.size(); ++i) {
      if (!containers[i].is_object()) continue;
      visit(containers[i], element_path(fmt::format("{}.{}", path, list), i),
            std::string_view(list));
    }
  }
}

// The bounds of all integers, from the field lists.
void validate_bounds(const TrainJob& job, FindingCollector& collector);
void validate_metadata(const ObjectMeta& metadata, std::int64_t max_workers,
                       FindingCollector& collector);
void validate_replicas(const TrainJob& job, FindingCollector& collector);
void validate_run_policy(const TrainJob& job, FindingCollector& collector);
void validate_trainer(const TrainJob& job, FindingCollector& collector);
// Warns if each pod of a cluster downloads for itself.
void warn_about_downloads(const TrainJob& job, FindingCollector& collector);
void validate_worker(const TrainJob& job, FindingCollector& collector);
void validate_volumes(const TrainJob& job, FindingCollector& collector);
// Warns about fields that no pod has.
void warn_about_unknown_pod_fields(const nlohmann::json& pod_template, const std::string& path,
                                   FindingCollector& collector);
// Warns about a mount or device of a volume that is in neither the pod's spec nor `others`: the API
// server refuses such a pod, unless an admission webhook adds the volume.
void warn_about_unknown_volumes(const nlohmann::json& pod_spec, const std::string& path,
                                std::vector<std::string_view> others, FindingCollector& collector);
// Rejects an overlay that changes what the operator sets.
void validate_pod_template(const TrainJob& job, FindingCollector& collector);
// Rejects what an overlay adds twice, and trainings beside the worker's.
void validate_pod_conflicts(const TrainJob& job, FindingCollector& collector);
// Rejects an overlay that violates the restricted Pod Security Standard.
void validate_pod_security(const TrainJob& job, FindingCollector& collector);

}  // namespace tilewright::api
