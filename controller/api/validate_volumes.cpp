// spec.volumes: names, and a side for each place the job may run at.
#include <algorithm>
#include <array>
#include <set>

#include "common/contract/nearest.h"
#include "controller/api/names.h"
#include "controller/api/validate.h"
#include "controller/api/validate_parts.h"

namespace tilewright::api {
namespace {

// What the restricted Pod Security standard allows.
const std::vector<std::string_view>& allowed_sources() {
  static const std::vector<std::string_view> kAllowed = {
      "configMap", "csi",       "downwardAPI", "emptyDir",
      "ephemeral", "projected", "secret",      "persistentVolumeClaim"};
  return kAllowed;
}

// Kubernetes' other volume sources, which it forbids.
constexpr std::array<std::string_view, 22> kForbidden = {"hostPath",
                                                         "nfs",
                                                         "iscsi",
                                                         "fc",
                                                         "rbd",
                                                         "cephfs",
                                                         "glusterfs",
                                                         "gitRepo",
                                                         "azureDisk",
                                                         "azureFile",
                                                         "cinder",
                                                         "flocker",
                                                         "flexVolume",
                                                         "image",
                                                         "photonPersistentDisk",
                                                         "portworxVolume",
                                                         "quobyte",
                                                         "scaleIO",
                                                         "storageos",
                                                         "vsphereVolume",
                                                         "awsElasticBlockStore",
                                                         "gcePersistentDisk"};

bool contains(const auto& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

void validate_source(const std::string& path, const nlohmann::json& source, Judge& judge) {
  for (const auto& member : source.items()) {
    const std::string& name = member.key();
    if (contains(allowed_sources(), name) || contains(kForbidden, name)) continue;
    const std::string_view near = nearest_name(name, allowed_sources());
    judge.refuse(member_path(path, name),
                 near.empty() ? "is not a known field"
                              : fmt::format("is not a known field; did you mean {}?", near));
  }
  if (source.size() > 1) {
    std::string names;
    for (const auto& member : source.items()) {
      names += (names.empty() ? "" : " and ") + member.key();
    }
    judge.refuse(path, fmt::format("found {}, expected one volume source", names));
  }
  if (const auto claim = source.find("persistentVolumeClaim"); claim != source.end()) {
    const std::string claim_path = path + ".persistentVolumeClaim";
    const auto name = claim->find("claimName");
    if (name == claim->end() || !name->is_string() ||
        !is_dns1123_subdomain(name->get_ref<const std::string&>())) {
      judge.refuse(claim_path + ".claimName",
                   fmt::format("found {}, expected a claim's name",
                               name == claim->end() ? "nothing"
                               : name->is_string()  ? shown(name->get_ref<const std::string&>())
                                                    : name->dump()));
    }
    if (claim->contains("readOnly") && !(*claim)["readOnly"].is_boolean()) {
      judge.refuse(claim_path + ".readOnly",
                   fmt::format("found {}, expected true or false", (*claim)["readOnly"].dump()));
    }
    for (const auto& member : claim->items()) {
      if (member.key() == "claimName" || member.key() == "readOnly") continue;
      const std::string_view near = nearest_name(member.key(), {"claimName", "readOnly"});
      judge.refuse(member_path(claim_path, member.key()),
                   near.empty() ? "is not a known field"
                                : fmt::format("is not a known field; did you mean {}?", near));
    }
  }
}

}  // namespace

void refuse_operators_volume(const std::string& name, const std::string& path, Judge& judge) {
  if (!name.starts_with("tilewright-")) return;
  judge.refuse(path + ".name", fmt::format("found {}, expected a name that does not begin with "
                                           "tilewright-, as the operator's own volumes do",
                                           name));
}

void forbid_sources(const nlohmann::json& volume, const std::string& path, Judge& judge) {
  for (const auto& member : volume.items()) {
    if (!contains(kForbidden, member.key())) continue;
    forbid(judge, member_path(path, member.key()), member.key(), "a persistentVolumeClaim");
  }
}

void validate_volumes(const TrainJob& job, Judge& judge) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < job.spec.volumes.size(); ++i) {
    const Volume& volume = job.spec.volumes[i];
    const std::string path = element_path("spec.volumes", i);
    if (!is_dns1123_label(volume.name)) {
      judge.refuse(path + ".name",
                   fmt::format("found {}, expected up to 63 lower-case letters, digits and '-'",
                               shown(volume.name)));
    } else if (!seen.insert(volume.name).second) {
      judge.refuse(path + ".name",
                   fmt::format("found {} twice, expected each name once", volume.name));
    }
    refuse_operators_volume(volume.name, path, judge);
    if (volume.local && (volume.local->empty() || volume.local->find('\0') != std::string::npos)) {
      judge.refuse(path + ".local", "found nothing, expected a folder");
    }
    if (volume.source.is_object()) validate_source(path, volume.source, judge);
    if (!volume.local && volume.source.is_null()) {
      judge.refuse(path, fmt::format("found the name {} alone, expected a volume source such as "
                                     "persistentVolumeClaim, a local folder, or both",
                                     shown(volume.name)));
    }
  }
}

Findings validate_for_local(const TrainJob& job, const Positions& positions) {
  Judge judge(positions);
  for (std::size_t i = 0; i < job.spec.volumes.size(); ++i) {
    const Volume& volume = job.spec.volumes[i];
    if (!volume.local) {
      judge.refuse(
          element_path("spec.volumes", i) + ".local",
          fmt::format("found nothing, expected the folder that stands for the volume {} on "
                      "this machine",
                      volume.name));
    }
  }
  for (std::size_t i = 0; i < job.spec.worker.env.size(); ++i) {
    const EnvVar& variable = job.spec.worker.env[i];
    if (!variable.value_from.is_null()) {
      judge.refuse(
          element_path("spec.worker.env", i) + ".valueFrom",
          fmt::format("found a reference for {}, expected a plain value: outside a cluster "
                      "there is nothing to look it up in",
                      variable.name));
    }
  }
  return judge.take();
}

Findings validate_for_cluster(const TrainJob& job, const Positions& positions) {
  Judge judge(positions);
  for (std::size_t i = 0; i < job.spec.volumes.size(); ++i) {
    const Volume& volume = job.spec.volumes[i];
    const std::string path = element_path("spec.volumes", i);
    if (volume.source.is_null()) {
      judge.refuse(path, fmt::format("found no volume source for {}, expected one such as "
                                     "persistentVolumeClaim",
                                     volume.name));
      continue;
    }
    forbid_sources(volume.source, path, judge);
  }
  validate_pod_security(job, judge);
  return judge.take();
}

}  // namespace tilewright::api
