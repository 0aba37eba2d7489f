// Checks spec.volumes: names, sources and local directories.
#include <set>

#include "common/contract/nearest.h"
#include "controller/api/names.h"
#include "controller/api/trainer_path.h"
#include "controller/api/validate.h"
#include "controller/api/validate_internal.h"
#include "controller/api/volume_sources.h"

namespace tilewright::api {
namespace {

void validate_source(const std::string& path, const nlohmann::json& source,
                     FindingCollector& collector) {
  for (const auto& member : source.items()) {
    const std::string& name = member.key();
    if (find_volume_source(name) != nullptr) continue;
    collector.error(member_path(path, name),
                    "unknown field" + did_you_mean(name, allowed_volume_sources()));
  }
  if (source.size() > 1) {
    std::string names;
    for (const auto& member : source.items()) {
      names += (names.empty() ? "" : " and ") + member.key();
    }
    collector.error(path, fmt::format("found {}, expected one volume source", names));
  }
  if (const auto claim = source.find("persistentVolumeClaim"); claim != source.end()) {
    const std::string claim_path = path + ".persistentVolumeClaim";
    const auto name = claim->find("claimName");
    if (name == claim->end() || !name->is_string() ||
        !is_dns1123_subdomain(name->get_ref<const std::string&>())) {
      collector.error(
          claim_path + ".claimName",
          fmt::format("found {}, expected the name of a claim",
                      name == claim->end() ? "nothing"
                      : name->is_string()  ? describe_value(name->get_ref<const std::string&>())
                                           : name->dump()));
    }
    if (claim->contains("readOnly") && !(*claim)["readOnly"].is_boolean()) {
      collector.error(claim_path + ".readOnly",
                      fmt::format("found {}, expected true or false", (*claim)["readOnly"].dump()));
    }
    for (const auto& member : claim->items()) {
      if (member.key() == "claimName" || member.key() == "readOnly") continue;
      collector.error(member_path(claim_path, member.key()),
                      "unknown field" + did_you_mean(member.key(), {"claimName", "readOnly"}));
    }
  }
}

}  // namespace

const Volume* find_volume(const TrainJob& job, std::string_view name) {
  for (const Volume& volume : job.spec.volumes) {
    if (volume.name == name) return &volume;
  }
  return nullptr;
}

void check_reserved_volume_name(const std::string& name, const std::string& path,
                                FindingCollector& collector) {
  if (!name.starts_with(kOperatorVolumePrefix)) return;
  collector.error(path + ".name",
                  fmt::format("found {}, expected a name that does not start with {}, which is "
                              "reserved for the operator's volumes",
                              name, kOperatorVolumePrefix));
}

void check_volume_sources(const nlohmann::json& volume, const std::string& path,
                          FindingCollector& collector) {
  for (const auto& member : volume.items()) {
    const VolumeSource* source = find_volume_source(member.key());
    if (source == nullptr || source->allowed) continue;
    report_pod_security_violation(collector, member_path(path, member.key()), member.key(),
                                  "a persistentVolumeClaim");
  }
}

void validate_volumes(const TrainJob& job, FindingCollector& collector) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < job.spec.volumes.size(); ++i) {
    const Volume& volume = job.spec.volumes[i];
    const std::string path = element_path("spec.volumes", i);
    if (!is_dns1123_label(volume.name)) {
      collector.error(path + ".name",
                      fmt::format("found {}, expected up to 63 lower-case letters, digits and '-'",
                                  describe_value(volume.name)));
    } else if (!seen.insert(volume.name).second) {
      collector.error(path + ".name",
                      fmt::format("found {} twice, expected each name once", volume.name));
    }
    check_reserved_volume_name(volume.name, path, collector);
    check_shared_memory_volume(volume.name, volume.source, path, collector);
    if (volume.local && (volume.local->empty() || volume.local->find('\0') != std::string::npos)) {
      collector.error(path + ".local", "found nothing, expected a directory");
    }
    if (volume.source.is_object()) validate_source(path, volume.source, collector);
    if (!volume.local && volume.source.is_null()) {
      collector.error(path, fmt::format("found no source for {}, expected a volume source such as "
                                        "persistentVolumeClaim, a local directory, or both",
                                        describe_value(volume.name)));
    }
  }
}

Findings validate_for_local(const TrainJob& job, const Positions& positions) {
  FindingCollector collector(positions);
  for (std::size_t i = 0; i < job.spec.volumes.size(); ++i) {
    const Volume& volume = job.spec.volumes[i];
    if (!volume.local) {
      collector.error(
          element_path("spec.volumes", i) + ".local",
          fmt::format("found nothing, expected the local directory of the volume {}", volume.name));
    }
  }
  for (std::size_t i = 0; i < job.spec.worker.env.size(); ++i) {
    const EnvVar& variable = job.spec.worker.env[i];
    if (!variable.value_from.is_null()) {
      collector.error(
          element_path("spec.worker.env", i) + ".valueFrom",
          fmt::format("found valueFrom for {}, expected value: valueFrom needs a cluster",
                      variable.name));
    }
  }
  return collector.take();
}

namespace {

void warn_about_temporary_output(const TrainJob& job, FindingCollector& collector) {
  const Result<TrainerPath> output = parse_trainer_path(job.spec.trainer.output);
  const Volume* volume = output.ok() ? find_volume(job, output->volume) : nullptr;
  if (volume == nullptr) return;
  const std::string_view source = temporary_source(volume->source);
  if (source.empty()) return;
  collector.warn("spec.trainer.output",
                 fmt::format("found the {} {}: the output ends with its pod and no restart finds a "
                             "checkpoint; use a volume such as a persistentVolumeClaim",
                             source, volume->name));
}

}  // namespace

Findings validate_for_cluster(const TrainJob& job, const Positions& positions) {
  FindingCollector collector(positions);
  for (std::size_t i = 0; i < job.spec.volumes.size(); ++i) {
    const Volume& volume = job.spec.volumes[i];
    const std::string path = element_path("spec.volumes", i);
    if (volume.source.is_null()) {
      collector.error(path, fmt::format("found no volume source for {}, expected one such as "
                                        "persistentVolumeClaim",
                                        volume.name));
      continue;
    }
    check_volume_sources(volume.source, path, collector);
  }
  validate_pod_security(job, collector);
  warn_about_downloads(job, collector);
  warn_about_temporary_output(job, collector);
  return collector.take();
}

}  // namespace tilewright::api
