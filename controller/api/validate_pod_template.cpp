// The overlay on the worker's pod: what it may not touch, and what restricted Pod Security forbids
// (kubernetes.io: "Pod Security Standards").
#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "common/contract/labels.h"
#include "common/contract/ports.h"
#include "controller/api/command.h"
#include "controller/api/json_members.h"
#include "controller/api/quantity.h"
#include "controller/api/validate_parts.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

constexpr const char* kOverlay = "spec.worker.podTemplate";
constexpr const char* kInitContainers = "initContainers";

// Calls back with each container of the overlay, its path and the name of its list.
template <typename Visit>
void each_container(const json& spec, const std::string& path, const Visit& visit) {
  for (const char* list : {"containers", kInitContainers}) {
    const auto found = spec.find(list);
    if (found == spec.end()) continue;
    for (std::size_t i = 0; found->is_array() && i < found->size(); ++i) {
      if ((*found)[i].is_object()) {
        visit((*found)[i], element_path(path + "." + list, i), std::string_view(list));
      }
    }
  }
}

// Of requests or limits; nothing where there is none that can be read.
std::optional<Quantity> amount(const json& amounts, const char* name) {
  const json& value = member(amounts, name);
  if (value.is_null()) return std::nullopt;
  return parse_quantity(value.is_string() ? value.get<std::string>() : value.dump());
}

void refuse_members(const json& object, const std::string& path,
                    std::initializer_list<std::pair<const char*, const char*>> places,
                    Judge& judge) {
  for (const auto& [name, place] : places) {
    if (member(object, name).is_null()) continue;
    judge.refuse(path + "." + name, std::string("found a value, expected nothing: ") + place);
  }
}

// A merge would take what these stand for off the pod.
void refuse_removals(const json& value, const std::string& path, Judge& judge) {
  const auto refuse = [&](const std::string& place, const char* what) {
    judge.refuse(place, fmt::format("found {}: the overlay adds to what the operator makes and "
                                    "removes nothing of it",
                                    what));
  };
  if (value.is_null()) refuse(path, "nothing, expected a value");
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      refuse_removals(value[i], element_path(path, i), judge);
    }
  }
  if (!value.is_object()) return;
  for (const auto& entry : value.items()) {
    const std::string place = member_path(path, entry.key());
    if (entry.key().starts_with('$')) {
      refuse(place, "a directive of strategic merge, expected a plain field");
    } else {
      refuse_removals(entry.value(), place, judge);
    }
  }
}

// Written in any way, relative to the root as the kubelet has it.
bool is_within(const std::string& path, const std::string& folder) {
  return (std::filesystem::path("/" + path) / "")
      .lexically_normal()
      .string()
      .starts_with(folder + "/");
}

void refuse_operators_mounts(const json& mounts, const std::string& path, Judge& judge) {
  const std::initializer_list<std::pair<const char*, const char*>> folders = {
      {"/dev/shm", "spec.worker.sharedMemory says it"},
      {kJobKeyFolder, "the operator puts the job's key there"}};
  for (std::size_t i = 0; mounts.is_array() && i < mounts.size(); ++i) {
    const std::string mount = text_member(mounts[i], "mountPath");
    for (const auto& [folder, why] : folders) {
      if (!is_within(mount, folder)) continue;
      judge.refuse(element_path(path, i) + ".mountPath",
                   fmt::format("found {}, expected another path: {}", shown(mount), why));
    }
  }
}

void refuse_runtime_variables(const json& env, const std::string& path, Judge& judge) {
  for (std::size_t i = 0; env.is_array() && i < env.size(); ++i) {
    const std::string name = text_member(env[i], "name");
    if (is_runtime_variable(name)) refuse_runtime_variable(name, element_path(path, i), judge);
  }
}

// A pod is Guaranteed when each of its containers has limits of CPU and memory and requests as
// much; what is not requested is requested as the limit says (kubernetes.io: "Pod Quality of
// Service Classes").
void advise_equal_amounts(const json& container, const std::string& path, Judge& judge) {
  const json& resources = member(container, "resources");
  for (const char* name : {"cpu", "memory"}) {
    const std::optional<Quantity> limit = amount(member(resources, "limits"), name);
    const std::optional<Quantity> request = amount(member(resources, "requests"), name);
    if (limit && limit->milli > 0 && (!request || request->milli == limit->milli)) continue;
    judge.warn(
        path + ".resources",
        fmt::format("found {} as limit and {} as request of {}, expected the same amount: "
                    "pods are not Guaranteed with this container, so that no worker's CPUs "
                    "are pinned, and a node short of memory evicts them sooner",
                    limit ? limit->text : "nothing", request ? request->text : "nothing", name));
    return;
  }
}

void check_container(const json& container, const std::string& path, std::string_view list,
                     Judge& judge) {
  const json& name = member(container, "name");
  if (!name.is_string()) {
    judge.refuse(path + ".name", fmt::format("found nothing, expected a container's name ({} is "
                                             "the operator's)",
                                             kWorkerContainer));
  } else if (name != kWorkerContainer) {
    advise_equal_amounts(container, path, judge);
  } else if (list == kInitContainers) {
    judge.refuse(path + ".name",
                 fmt::format("found {}, expected another name: the operator's container has it",
                             kWorkerContainer));
  } else {
    constexpr const char* kLastLines = "the operator reads the last lines of its log";
    refuse_members(container, path,
                   {{"image", "spec.worker.image says it"},
                    {"command", "spec.trainer says it"},
                    {"args", "spec.trainer.args says it"},
                    {"resources", "spec.worker.resources says it"},
                    {"terminationMessagePolicy", kLastLines},
                    {"terminationMessagePath", kLastLines}},
                   judge);
    refuse_operators_mounts(member(container, "volumeMounts"), path + ".volumeMounts", judge);
    refuse_runtime_variables(member(container, "env"), path + ".env", judge);
  }
}

void check_security_context(const json& context, const std::string& path, Judge& judge) {
  if (member(context, "privileged") == true) forbid(judge, path + ".privileged", "true", "false");
  if (member(context, "allowPrivilegeEscalation") == true) {
    forbid(judge, path + ".allowPrivilegeEscalation", "true", "false");
  }
  if (member(context, "runAsNonRoot") == false) {
    forbid(judge, path + ".runAsNonRoot", "false", "true");
  }
  if (member(context, "runAsUser") == 0) {
    forbid(judge, path + ".runAsUser", "0", "a user other than root");
  }
  if (member(member(context, "seccompProfile"), "type") == "Unconfined") {
    forbid(judge, path + ".seccompProfile.type", "Unconfined", "RuntimeDefault or Localhost");
  }
  const json& added = member(member(context, "capabilities"), "add");
  for (std::size_t i = 0; added.is_array() && i < added.size(); ++i) {
    if (added[i] != "NET_BIND_SERVICE") {
      forbid(judge, element_path(path + ".capabilities.add", i), added[i].dump(), "no capability");
    }
  }
  const json& dropped = member(member(context, "capabilities"), "drop");
  if (!dropped.is_null() && std::ranges::find(dropped, "ALL") == dropped.end()) {
    forbid(judge, path + ".capabilities.drop", "a list without ALL", "ALL in it");
  }
}

}  // namespace

void forbid(Judge& judge, const std::string& path, const std::string& found,
            std::string_view expected) {
  judge.refuse(path, fmt::format("found {}, which restricted Pod Security forbids, expected {}",
                                 found, expected));
}

void validate_pod_template(const TrainJob& job, Judge& judge) {
  const json& overlay = job.spec.worker.pod_template;
  if (!overlay.is_object()) return;
  refuse_removals(overlay, kOverlay, judge);
  for (const auto& entry : overlay.items()) {
    const std::string path = member_path(kOverlay, entry.key());
    if (entry.key() != "metadata" && entry.key() != "spec") {
      judge.refuse(path, "is not a known field; a pod template has metadata and spec");
    } else if (!entry.value().is_object() && !entry.value().is_null()) {
      judge.refuse(path, "found no object, expected an object");
    }
  }
  const std::string spec_path = std::string(kOverlay) + ".spec";
  refuse_members(member(overlay, "metadata"), std::string(kOverlay) + ".metadata",
                 {{"name", "the operator names its pods"},
                  {"generateName", "the operator names its pods"},
                  {"namespace", "pods stand in their job's namespace"},
                  {"ownerReferences", "pods belong to their job"},
                  {"finalizers", "the job's end would wait for them"}},
                 judge);
  const json& spec = member(overlay, "spec");
  if (!spec.is_object()) return;
  refuse_members(spec, spec_path,
                 {{"restartPolicy", "spec.worker.restartPolicy says it"},
                  {"activeDeadlineSeconds", "spec.runPolicy.activeDeadlineSeconds says it"},
                  {"subdomain", "the operator sets it"},
                  {"hostname", "the operator sets it"}},
                 judge);
  const json& volumes = member(spec, "volumes");
  for (std::size_t i = 0; volumes.is_array() && i < volumes.size(); ++i) {
    refuse_operators_volume(text_member(volumes[i], "name"),
                            element_path(spec_path + ".volumes", i), judge);
  }
  each_container(spec, spec_path,
                 [&](const json& container, const std::string& path, std::string_view list) {
                   check_container(container, path, list, judge);
                 });
}

void validate_pod_security(const TrainJob& job, Judge& judge) {
  const json& spec = member(job.spec.worker.pod_template, "spec");
  const std::string path = std::string(kOverlay) + ".spec";
  for (const char* name : {"hostNetwork", "hostPID", "hostIPC"}) {
    if (member(spec, name) == true) forbid(judge, path + "." + name, "true", "false");
  }
  check_security_context(member(spec, "securityContext"), path + ".securityContext", judge);
  const json& volumes = member(spec, "volumes");
  for (std::size_t i = 0; volumes.is_array() && i < volumes.size(); ++i) {
    forbid_sources(volumes[i], element_path(path + ".volumes", i), judge);
  }
  if (!spec.is_object()) return;
  each_container(spec, path, [&](const json& container, const std::string& container_path, auto) {
    check_security_context(member(container, "securityContext"),
                           container_path + ".securityContext", judge);
    const json& ports = member(container, "ports");
    for (std::size_t i = 0; ports.is_array() && i < ports.size(); ++i) {
      const json& port = member(ports[i], "hostPort");
      if (port.is_number() && port != 0) {
        forbid(judge, element_path(container_path + ".ports", i) + ".hostPort", port.dump(),
               "no host port");
      }
    }
  });
}

}  // namespace tilewright::api
