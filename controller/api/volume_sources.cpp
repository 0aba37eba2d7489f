#include "controller/api/volume_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>

#include "common/json/members.h"
#include "controller/api/cel.h"

namespace tilewright::api {
namespace {

constexpr const char* kForbidden = "Not allowed by the restricted Pod Security Standard.";
constexpr std::array kSources = {
    VolumeSource{"persistentVolumeClaim", "A PersistentVolumeClaim in the namespace of the job.",
                 true},
    VolumeSource{"configMap", "A ConfigMap, as in a pod.", true},
    VolumeSource{"secret", "A Secret, as in a pod.", true},
    VolumeSource{"emptyDir", "A directory that is deleted with the pod.", true},
    VolumeSource{"ephemeral", "A PersistentVolumeClaim that is deleted with the pod.", true},
    VolumeSource{"projected", "Several sources in one directory, as in a pod.", true},
    VolumeSource{"downwardAPI", "Files with metadata of the pod.", true},
    VolumeSource{"csi", "An ephemeral volume of a CSI driver.", true},
    // These fields are in the schema so that the API server rejects them with a message.
    VolumeSource{"hostPath", kForbidden}, VolumeSource{"nfs", kForbidden},
    VolumeSource{"iscsi", ""}, VolumeSource{"fc", ""}, VolumeSource{"rbd", ""},
    VolumeSource{"cephfs", ""}, VolumeSource{"glusterfs", ""}, VolumeSource{"gitRepo", ""},
    VolumeSource{"azureDisk", ""}, VolumeSource{"azureFile", ""}, VolumeSource{"cinder", ""},
    VolumeSource{"flocker", ""}, VolumeSource{"flexVolume", ""}, VolumeSource{"image", ""},
    VolumeSource{"photonPersistentDisk", ""}, VolumeSource{"portworxVolume", ""},
    VolumeSource{"quobyte", ""}, VolumeSource{"scaleIO", ""}, VolumeSource{"storageos", ""},
    VolumeSource{"vsphereVolume", ""}, VolumeSource{"awsElasticBlockStore", ""},
    VolumeSource{"gcePersistentDisk", ""}};

std::vector<std::string_view> names(bool allowed) {
  std::vector<std::string_view> found;
  for (const VolumeSource& source : kSources) {
    if (source.allowed == allowed) found.push_back(source.name);
  }
  return found;
}

nlohmann::json claim_schema() {
  nlohmann::json rules = nlohmann::json::array();
  const Rule name = cel::subdomain("the name of a claim");
  rules.push_back({{"rule", name.rule}, {"messageExpression", name.message_expression}});
  return {
      {"type", "object"},
      {"required", nlohmann::json::array({"claimName"})},
      {"properties",
       {{"claimName",
         {{"type", "string"},
          {"maxLength", 253},
          {"description", "Name of the PersistentVolumeClaim."},
          {"x-kubernetes-validations", rules}}},
        {"readOnly",
         {{"type", "boolean"}, {"description", "If true, the volume is mounted read-only."}}}}}};
}

}  // namespace

std::span<const VolumeSource> volume_sources() { return kSources; }

const VolumeSource* find_volume_source(std::string_view name) {
  for (const VolumeSource& source : kSources) {
    if (source.name == name) return &source;
  }
  return nullptr;
}

std::string_view temporary_source(const nlohmann::json& volume) {
  for (const char* name : {"emptyDir", "ephemeral"}) {
    if (!member(volume, name).is_null()) return name;
  }
  return "";
}

std::vector<std::string_view> allowed_volume_sources() { return names(true); }
std::vector<std::string_view> forbidden_volume_sources() { return names(false); }

nlohmann::json empty_dir_schema() {
  return {{"type", "object"},
          {"x-kubernetes-preserve-unknown-fields", true},
          {"properties",
           {{"medium",
             {{"type", "string"},
              {"maxLength", 63},
              {"description", "Memory: a tmpfs, whose files count against the memory limit."}}}}}};
}

Rule shared_memory_volume_rule() {
  return {
      .rule = fmt::format("!has(self.name) || !(self.name in ['{}']) || !has(self.emptyDir) || "
                          "!has(self.emptyDir.medium) || self.emptyDir.medium != 'Memory'",
                          fmt::join(kSharedMemoryVolumes, "', '")),
      .message_expression =
          "\"found the memory volume %s, expected spec.worker.sharedMemory, which sets the size "
          "of /dev/shm\".format([self.name])"};
}

nlohmann::json volume_source_properties() {
  nlohmann::json properties = nlohmann::json::object();
  for (const VolumeSource& source : kSources) {
    if (source.description.empty()) continue;
    nlohmann::json schema = {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
    if (source.name == "persistentVolumeClaim") schema = claim_schema();
    if (source.name == "emptyDir") schema = empty_dir_schema();
    schema["description"] = source.description;
    properties[std::string(source.name)] = schema;
  }
  return properties;
}

std::vector<Rule> volume_source_rules() {
  std::vector<std::string> present;
  std::vector<Rule> forbidden;
  for (const VolumeSource& source : kSources) {
    if (source.description.empty()) continue;
    present.push_back(fmt::format("has(self.{})", source.name));
    if (source.allowed) continue;
    forbidden.push_back({.rule = fmt::format("!has(self.{})", source.name),
                         .message = fmt::format("found {}, which restricted Pod Security forbids, "
                                                "expected a persistentVolumeClaim",
                                                source.name),
                         .field_path = fmt::format(".{}", source.name)});
  }
  const std::string list = fmt::format("[{}]", fmt::join(present, ", "));
  std::vector<Rule> rules = {
      {.rule = list + ".exists(source, source)",
       .message_expression = "\"found no volume source for %s, expected one such as "
                             "persistentVolumeClaim\".format([self.name])"},
      {.rule = list + ".filter(source, source).size() <= 1",
       .message = "found several volume sources, expected one volume source"}};
  rules.push_back(shared_memory_volume_rule());
  rules.insert(rules.end(), forbidden.begin(), forbidden.end());
  return rules;
}

}  // namespace tilewright::api
