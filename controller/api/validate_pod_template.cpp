// Checks spec.worker.podTemplate: fields that the operator sets.
#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <string_view>

#include "common/contract/labels.h"
#include "common/contract/nearest.h"
#include "common/contract/pod_paths.h"
#include "common/json/members.h"
#include "controller/api/command.h"
#include "controller/api/object_reader.h"
#include "controller/api/pod_template_types.h"
#include "controller/api/quantity.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

constexpr const char* kInitContainers = "initContainers";

// An amount in requests or limits; nullopt if absent or invalid.
std::optional<Quantity> amount(const json& amounts, const char* name) {
  const json& value = member(amounts, name);
  if (value.is_null()) return std::nullopt;
  return parse_quantity(value.is_string() ? value.get<std::string>() : value.dump());
}

void reject_fields(const json& object, const std::string& path,
                   std::initializer_list<std::pair<const char*, const char*>> places,
                   FindingCollector& collector) {
  for (const auto& [name, place] : places) {
    if (member(object, name).is_null()) continue;
    collector.error(path + "." + name, std::string("must not be set: ") + place);
  }
}

// Rejects null and directives of a strategic merge patch, which would remove fields of the pod.
void reject_removals(const json& value, const std::string& path, FindingCollector& collector) {
  const auto reject = [&](const std::string& place, const char* what) {
    collector.error(place,
                    fmt::format("found {}: podTemplate can only add fields to the pod", what));
  };
  if (value.is_null()) reject(path, "nothing, expected a value");
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      reject_removals(value[i], element_path(path, i), collector);
    }
  }
  if (!value.is_object()) return;
  for (const auto& entry : value.items()) {
    const std::string place = member_path(path, entry.key());
    if (entry.key().starts_with('$')) {
      reject(place, "a directive of a strategic merge patch, expected a plain field");
    } else {
      reject_removals(entry.value(), place, collector);
    }
  }
}

// Whether `path` is `directory` or below it. The kubelet resolves a relative path against the root.
bool is_within(const std::string& path, const std::string& directory) {
  return (std::filesystem::path("/" + path) / "")
      .lexically_normal()
      .string()
      .starts_with(directory + "/");
}

void check_reserved_mounts(const json& mounts, const std::string& path,
                           FindingCollector& collector) {
  const std::initializer_list<std::pair<const char*, const char*>> directories = {
      {"/dev/shm", "use spec.worker.sharedMemory"},
      {kJobKeyDirectory, "the operator mounts the job's key there"}};
  for (std::size_t i = 0; mounts.is_array() && i < mounts.size(); ++i) {
    const std::string mount = string_member(mounts[i], "mountPath");
    for (const auto& [directory, reason] : directories) {
      if (!is_within(mount, directory)) continue;
      collector.error(
          element_path(path, i) + ".mountPath",
          fmt::format("found {}, expected another path: {}", describe_value(mount), reason));
    }
  }
}

void check_reserved_variables(const json& env, const std::string& path,
                              FindingCollector& collector) {
  for (std::size_t i = 0; env.is_array() && i < env.size(); ++i) {
    const std::string name = string_member(env[i], "name");
    if (is_runtime_variable(name)) report_reserved_variable(name, element_path(path, i), collector);
  }
}

// A pod is Guaranteed if each of its containers has limits of CPU and memory and equal requests. A
// missing request equals the limit (kubernetes.io: "Pod Quality of Service Classes").
void warn_if_not_guaranteed(const json& container, const std::string& path,
                            FindingCollector& collector) {
  const json& resources = member(container, "resources");
  for (const char* name : {"cpu", "memory"}) {
    const std::optional<Quantity> limit = amount(member(resources, "limits"), name);
    const std::optional<Quantity> request = amount(member(resources, "requests"), name);
    if (limit && limit->milli > 0 && (!request || request->milli == limit->milli)) continue;
    collector.warn(
        path + ".resources",
        fmt::format("found limit {} and request {} for {}, expected equal amounts: with this "
                    "container the pods are not Guaranteed, so their CPUs are not pinned and a "
                    "node that runs out of memory evicts them earlier",
                    limit ? limit->text : "nothing", request ? request->text : "nothing", name));
    return;
  }
}

void check_container(const json& container, const std::string& path, std::string_view list,
                     FindingCollector& collector) {
  const json& name = member(container, "name");
  if (!name.is_string()) {
    collector.error(path + ".name", fmt::format("found nothing, expected the name of a container "
                                                "(the operator's is {})",
                                                kWorkerContainer));
  } else if (name != kWorkerContainer) {
    warn_if_not_guaranteed(container, path, collector);
  } else if (list == kInitContainers) {
    collector.error(
        path + ".name",
        fmt::format("found {}, expected another name: it is the name of the operator's container",
                    kWorkerContainer));
  } else {
    constexpr const char* kLastLines = "the operator reads the last lines of its log";
    reject_fields(container, path,
                  {{"image", "use spec.worker.image"},
                   {"command", "use spec.trainer"},
                   {"args", "use spec.trainer.args"},
                   {"resources", "use spec.worker.resources"},
                   {"terminationMessagePolicy", kLastLines},
                   {"terminationMessagePath", kLastLines}},
                  collector);
    check_reserved_mounts(member(container, "volumeMounts"), path + ".volumeMounts", collector);
    check_reserved_variables(member(container, "env"), path + ".env", collector);
  }
}

}  // namespace

void warn_about_unknown_pod_fields(const json& pod_template, const std::string& path,
                                   FindingCollector& collector) {
  for (const FieldError& unknown : unknown_pod_fields(pod_template, path)) {
    collector.warn(unknown.path, unknown.message);
  }
}

void warn_about_unknown_volumes(const json& pod_spec, const std::string& path,
                                std::vector<std::string_view> others, FindingCollector& collector) {
  std::vector<std::string_view> names = std::move(others);
  const json& volumes = member(pod_spec, "volumes");
  for (std::size_t i = 0; volumes.is_array() && i < volumes.size(); ++i) {
    const json& name = member(volumes[i], "name");
    if (name.is_string()) names.emplace_back(name.get_ref<const std::string&>());
  }
  const std::set<std::string_view> known(names.begin(), names.end());
  // A tenant chooses how many volumes and mounts the operator compares in each reconcile.
  constexpr std::size_t kMostCompared = 100;
  if (names.size() > kMostCompared) names.clear();
  std::size_t unknown = 0;
  const auto check = [&](const json& use, const std::string& place) {
    const std::string name = string_member(use, "name");
    if (name.empty() || name.starts_with(kOperatorVolumePrefix) || known.contains(name)) return;
    if (++unknown > kMostCompared) return;
    collector.warn(place + ".name", fmt::format("found {}, expected the name of a volume{}",
                                                describe_value(name), did_you_mean(name, names)));
  };
  const auto check_uses = [&](const json& container, const std::string& at, std::string_view) {
    for (const char* list : {"volumeMounts", "volumeDevices"}) {
      const json& uses = member(container, list);
      for (std::size_t i = 0; uses.is_array() && i < uses.size(); ++i)
        check(uses[i], element_path(fmt::format("{}.{}", at, list), i));
    }
  };
  each_container(pod_spec, path, check_uses);
}

void validate_pod_template(const TrainJob& job, FindingCollector& collector) {
  const json& overlay = job.spec.worker.pod_template;
  if (!overlay.is_object()) return;
  reject_removals(overlay, kPodTemplatePath, collector);
  warn_about_unknown_pod_fields(overlay, kPodTemplatePath, collector);
  for (const auto& entry : overlay.items()) {
    const std::string path = member_path(kPodTemplatePath, entry.key());
    if (entry.key() != "metadata" && entry.key() != "spec") {
      collector.error(path, "unknown field, expected metadata or spec");
    } else if (!entry.value().is_object() && !entry.value().is_null()) {
      collector.error(path,
                      fmt::format("found {}, expected an object", describe_found(entry.value())));
    }
  }
  const std::string spec_path = kPodSpecPath;
  reject_fields(member(overlay, "metadata"), std::string(kPodTemplatePath) + ".metadata",
                {{"name", "the operator sets it"},
                 {"generateName", "the operator sets it"},
                 {"namespace", "pods are in the namespace of their job"},
                 {"ownerReferences", "the operator sets it"},
                 {"finalizers", "they would delay the deletion of the pods"}},
                collector);
  const json& spec = member(overlay, "spec");
  if (!spec.is_object()) return;
  reject_fields(spec, spec_path,
                {{"restartPolicy", "use spec.worker.restartPolicy"},
                 {"activeDeadlineSeconds", "use spec.runPolicy.activeDeadlineSeconds"},
                 {"subdomain", "the operator sets it"},
                 {"hostname", "the operator sets it"},
                 {"ephemeralContainers", "they are added to a running pod"}},
                collector);
  std::vector<std::string_view> of_job;
  for (const Volume& volume : job.spec.volumes) of_job.push_back(volume.name);
  warn_about_unknown_volumes(spec, spec_path, std::move(of_job), collector);
  const json& volumes = member(spec, "volumes");
  for (std::size_t i = 0; volumes.is_array() && i < volumes.size(); ++i) {
    check_reserved_volume_name(string_member(volumes[i], "name"),
                               element_path(spec_path + ".volumes", i), collector);
  }
  each_container(spec, spec_path,
                 [&](const json& container, const std::string& path, std::string_view list) {
                   check_container(container, path, list, collector);
                 });
}

}  // namespace tilewright::api
