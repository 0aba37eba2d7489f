// Checks a PyTorchJob: what Kubeflow's webhook refuses (pkg/webhooks/pytorch of v1.9), and values
// with which torchrun fails in every pod.
#include <algorithm>
#include <array>

#include "common/base/strings.h"
#include "common/contract/labels.h"
#include "controller/api/bounds_checker.h"
#include "controller/api/pytorchjob_fields.h"
#include "controller/api/validate.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

constexpr const char* kReplicaSpecs = "spec.pytorchReplicaSpecs";

void validate_claims(const PyTorchReplicaSpec& replica, const std::string& path,
                     FindingCollector& collector) {
  const json& volumes = member(member(replica.pod_template, "spec"), "volumes");
  for (std::size_t i = 0; volumes.is_array() && i < volumes.size(); ++i) {
    const json& claim = member(volumes[i], "persistentVolumeClaim");
    if (claim.is_null() || !string_member(claim, "claimName").empty()) continue;
    collector.error(
        element_path(path + ".template.spec.volumes", i) + ".persistentVolumeClaim.claimName",
        "found nothing, expected the name of a claim");
  }
}

void validate_template(const PyTorchReplicaSpec& replica, const std::string& path,
                       FindingCollector& collector) {
  warn_about_unknown_pod_fields(replica.pod_template, path + ".template", collector);
  warn_about_unknown_volumes(member(replica.pod_template, "spec"), path + ".template.spec", {},
                             collector);
  validate_claims(replica, path, collector);
  const std::string place = path + ".template.spec.containers";
  const json& containers = member(member(replica.pod_template, "spec"), "containers");
  if (!containers.is_array() || containers.empty()) {
    return collector.error(
        place, fmt::format("found nothing, expected a container named {}", kPyTorchContainer));
  }
  for (std::size_t i = 0; i < containers.size(); ++i) {
    if (!string_member(containers[i], "image").empty()) continue;
    collector.error(element_path(place, i) + ".image", "found nothing, expected an image");
  }
  if (pytorch_container(replica) != nullptr) return;
  std::string names;
  for (const json& container : containers) {
    names += (names.empty() ? "" : ", ") + describe_value(string_member(container, "name"));
  }
  collector.error(place,
                  fmt::format("found {}, expected a container named {}", names, kPyTorchContainer));
}

void validate_replica_specs(const PyTorchJobSpec& spec, FindingCollector& collector) {
  if (!spec.master && !spec.worker) {
    collector.error(kReplicaSpecs, fmt::format("found nothing, expected {}, {} or both",
                                               kMasterType, kWorkerType));
  }
  if (spec.elastic_policy && !spec.worker) {
    collector.error(member_path(kReplicaSpecs, kWorkerType),
                    "found nothing, expected the workers of spec.elasticPolicy");
  }
  if (spec.master) {
    const std::string path = member_path(kReplicaSpecs, kMasterType);
    if (*spec.master->replicas != 1) {
      collector.error(path + ".replicas", fmt::format("found {}, expected 1: a job has one master",
                                                      *spec.master->replicas));
    }
    validate_template(*spec.master, path, collector);
  }
  if (spec.worker) {
    validate_template(*spec.worker, member_path(kReplicaSpecs, kWorkerType), collector);
  }
}

void validate_process_count(const PyTorchJobSpec& spec, FindingCollector& collector) {
  const bool deprecated = spec.elastic_policy && spec.elastic_policy->nproc_per_node;
  if (deprecated && spec.nproc_per_node) {
    collector.error("spec.elasticPolicy.nProcPerNode",
                    "must not be set together with spec.nprocPerNode");
  } else if (deprecated) {
    collector.warn("spec.elasticPolicy.nProcPerNode",
                   "is deprecated since Kubeflow 1.7; use spec.nprocPerNode");
  }
  if (!spec.nproc_per_node) return;
  constexpr std::array<std::string_view, 4> kWords = {"auto", "cpu", "gpu", "xpu"};
  const std::string& text = *spec.nproc_per_node;
  const auto number = parse_number<std::int64_t>(text);
  if (std::ranges::find(kWords, text) != kWords.end()) return;
  if (number && kProcessBounds.contains(*number)) return;
  collector.error(
      "spec.nprocPerNode",
      fmt::format("found {}, expected auto, cpu, gpu, xpu or an integer from {} to {}",
                  describe_value(text), kProcessBounds.minimum, kProcessBounds.maximum));
}

void validate_elastic_policy(const PyTorchJobSpec& spec, FindingCollector& collector) {
  if (!spec.elastic_policy) return;
  const PyTorchElasticPolicy& elastic = *spec.elastic_policy;
  if (elastic.min_replicas && elastic.max_replicas &&
      *elastic.min_replicas > *elastic.max_replicas) {
    collector.error("spec.elasticPolicy.minReplicas",
                    fmt::format("found {}, expected at most {}, the value of "
                                "spec.elasticPolicy.maxReplicas",
                                *elastic.min_replicas, *elastic.max_replicas));
  } else if (spec.worker && elastic.min_replicas && elastic.max_replicas) {
    const std::string path = member_path(kReplicaSpecs, kWorkerType) + ".replicas";
    const std::int64_t replicas = *spec.worker->replicas;
    if (replicas < *elastic.min_replicas) {
      collector.warn(path, fmt::format("found {}, fewer than {}, the value of "
                                       "spec.elasticPolicy.minReplicas: the training waits for "
                                       "more workers",
                                       replicas, *elastic.min_replicas));
    } else if (replicas > *elastic.max_replicas) {
      collector.warn(path, fmt::format("found {}, more than {}, the value of "
                                       "spec.elasticPolicy.maxReplicas: the other workers wait",
                                       replicas, *elastic.max_replicas));
    }
  }
  for (std::size_t i = 0; i < elastic.rdzv_conf.size(); ++i) {
    if (!elastic.rdzv_conf[i].key.empty()) continue;
    collector.error(element_path("spec.elasticPolicy.rdzvConf", i) + ".key",
                    "found nothing, expected the name of a setting");
  }
  for (std::size_t i = 0; elastic.metrics.is_array() && i < elastic.metrics.size(); ++i) {
    if (!string_member(elastic.metrics[i], "type").empty()) continue;
    collector.error(element_path("spec.elasticPolicy.metrics", i),
                    "found no type, expected a metric of a HorizontalPodAutoscaler");
  }
}

}  // namespace

Findings validate(const PyTorchJob& job, const Positions& positions) {
  FindingCollector collector(positions);
  const PyTorchJobSpec& spec = job.spec;
  BoundsChecker checker("spec", collector);
  visit_fields(checker, spec);
  std::int64_t most = spec.worker ? *spec.worker->replicas : 1;
  if (spec.elastic_policy) most = std::max(most, spec.elastic_policy->max_replicas.value_or(1));
  validate_metadata(job.metadata, most, collector);
  validate_replica_specs(spec, collector);
  validate_process_count(spec, collector);
  validate_elastic_policy(spec, collector);
  return collector.take();
}

}  // namespace tilewright::api
