#include "controller/cluster/objects.h"

#include <fmt/format.h>

#include <utility>

#include "common/contract/environment.h"
#include "common/contract/labels.h"
#include "common/contract/pod_paths.h"
#include "common/contract/ports.h"
#include "common/json/members.h"
#include "controller/api/command.h"
#include "controller/api/pod_security.h"
#include "controller/api/strategic_merge.h"
#include "controller/api/trainer_path.h"
#include "controller/cluster/gang_scheduler.h"

namespace tilewright::cluster {
namespace {

using nlohmann::json;

// The user and group "nonroot" of minimal images.
constexpr std::int64_t kDefaultUser = 65532;
// Readable by owner and group. fsGroup makes the worker's group the group of the file.
constexpr int kKeyMode = 0440;

// Volumes that the operator adds. Manifests must not use the prefix.
constexpr const char* kShmVolume = "tilewright-shm";
constexpr const char* kTmpVolume = "tilewright-tmp";

json selector_of(const api::TrainJob& job) {
  return {{labels::kJobName, job.metadata.name}, {labels::kRole, labels::kRoleWorker}};
}

json metadata_of(const api::TrainJob& job, const std::string& name) {
  return cluster::metadata_of(kApiVersion, kTrainJobKind, job.metadata, name);
}

// The schedulerName of the job's pods.
std::string pod_scheduler(const api::TrainJob& job) {
  std::string name = scheduler_of(job.spec.worker.pod_template);
  return name.empty() ? job.spec.worker.scheduler_name : name;
}

json pod_metadata(const api::TrainJob& job, std::int64_t index, const PodOptions& options) {
  json metadata = metadata_of(job, api::worker_name(job, index));
  metadata["labels"][labels::kRole] = labels::kRoleWorker;
  metadata["labels"][labels::kWorkerIndex] = std::to_string(index);
  if (job.spec.run_policy.scheduling_policy) {
    if (uses_volcano(options.gang_scheduler, pod_scheduler(job))) {
      metadata["annotations"][gang::kVolcanoAnnotation] = pod_group_name(job);
    } else {
      metadata["labels"][gang::kSchedulerPluginsLabel] = pod_group_name(job);
    }
  }
  return metadata;
}

json environment_of(const api::TrainJob& job, std::int64_t index, const std::string& rendezvous) {
  json list = json::array();
  // The manifest's variables come last, in manifest order, including those with valueFrom, so that
  // they can refer to the variables before them.
  api::TrainJob bare = job;
  bare.spec.worker.env.clear();
  for (const auto& [name, value] :
       api::worker_environment(bare, {rendezvous, job_key_path(), index})) {
    list.push_back({{"name", name}, {"value", value}});
  }
  list.push_back({{"name", env::kMetricsAddress}, {"value", worker_metrics_address()}});
  // The NetworkPolicy opens only this port.
  list.push_back({{"name", env::kTransportPort}, {"value", std::to_string(kTransportPort)}});
  if (!api::sets_any(job, {env::kHfHome, env::kXdgCacheHome})) {
    list.push_back({{"name", env::kHfHome}, {"value", kPodHubCache}});
  }
  for (const api::EnvVar& variable : job.spec.worker.env) {
    json entry = {{"name", variable.name}};
    if (variable.value_from.is_null()) {
      entry["value"] = variable.value;
    } else {
      entry["valueFrom"] = variable.value_from;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

json mounts_of(const api::TrainJob& job) {
  json mounts = {{{"name", kShmVolume}, {"mountPath", "/dev/shm"}},
                 {{"name", kTmpVolume}, {"mountPath", "/tmp"}},
                 {{"name", kKeyVolume}, {"mountPath", kJobKeyDirectory}, {"readOnly", true}}};
  for (const api::Volume& volume : job.spec.volumes) {
    json mount = {{"name", volume.name}, {"mountPath", api::pod_path({volume.name, ""})}};
    if (api::is_read_only(volume)) mount["readOnly"] = true;
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

json volumes_of(const api::TrainJob& job, const std::string& key_id) {
  json volumes = {
      {{"name", kShmVolume},
       {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", job.spec.worker.shared_memory->text}}}},
      {{"name", kTmpVolume}, {"emptyDir", json::object()}},
      {{"name", kKeyVolume},
       {"secret", {{"secretName", secret_name(job.metadata, key_id)}, {"defaultMode", kKeyMode}}}}};
  for (const api::Volume& volume : job.spec.volumes) {
    json entry = volume.source;
    entry["name"] = volume.name;
    volumes.push_back(std::move(entry));
  }
  return volumes;
}

json container_of(const api::TrainJob& job, std::int64_t index, const std::string& rendezvous) {
  const api::Worker& worker = job.spec.worker;
  const std::vector<std::string> words = api::worker_command(job, api::pod_path);
  json amounts = json::object();
  for (const auto& [name, amount] : worker.resources) amounts[name] = amount.text;
  json container = {
      {"name", kWorkerContainer},
      {"image", worker.image},
      {"command", {words.front()}},
      {"args", std::vector<std::string>(words.begin() + 1, words.end())},
      {"env", environment_of(job, index, rendezvous)},
      {"resources", {{"limits", amounts}, {"requests", amounts}}},  // Guaranteed
      {"ports",
       {{{"name", kTransportPortName}, {"containerPort", kTransportPort}, {"protocol", "TCP"}},
        {{"name", kMetricsPortName}, {"containerPort", kWorkerMetricsPort}, {"protocol", "TCP"}}}},
      {"volumeMounts", mounts_of(job)},
      {"securityContext",
       {{"allowPrivilegeEscalation", false},
        {"readOnlyRootFilesystem", true},
        {"runAsNonRoot", true},
        {"capabilities", {{"drop", {"ALL"}}}}}},
      // Puts the last log lines into the pod's status, so that the operator needs no right to read
      // logs.
      {"terminationMessagePolicy", "FallbackToLogsOnError"}};
  if (worker.image_pull_policy) {
    container["imagePullPolicy"] = std::string(to_string(*worker.image_pull_policy));
  }
  return container;
}

json spec_of(const api::TrainJob& job, std::int64_t index, const PodOptions& options) {
  const api::Worker& worker = job.spec.worker;
  json spec = {
      {"restartPolicy", "Never"},  // the operator decides on restarts and creates a new pod
      {"hostname", api::worker_name(job, index)},
      {"subdomain", service_name(job)},
      {"automountServiceAccountToken", false},
      // Variables of the namespace's Services could change how $(VAR) expands.
      {"enableServiceLinks", false},
      {"terminationGracePeriodSeconds", *worker.termination_grace_period_seconds},
      {"securityContext",
       {{"runAsNonRoot", true},
        {"runAsUser", worker.run_as_user.value_or(kDefaultUser)},
        {"runAsGroup", worker.run_as_user.value_or(kDefaultUser)},
        {"fsGroup", worker.fs_group.value_or(kDefaultUser)},
        // Avoids changing the group of every file of a large volume at each start.
        {"fsGroupChangePolicy", "OnRootMismatch"},
        {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
      {"containers", {container_of(job, index, options.rendezvous)}},
      {"volumes", volumes_of(job, options.key_id)}};
  if (!worker.node_selector.empty()) spec["nodeSelector"] = worker.node_selector;
  if (!worker.tolerations.is_null()) spec["tolerations"] = worker.tolerations;
  if (!worker.affinity.is_null()) spec["affinity"] = worker.affinity;
  if (!worker.topology_spread_constraints.is_null()) {
    spec["topologySpreadConstraints"] = worker.topology_spread_constraints;
  }
  const std::pair<const char*, const std::string*> names[] = {
      {"serviceAccountName", &worker.service_account_name},
      {"priorityClassName", &worker.priority_class_name},
      {"schedulerName", &worker.scheduler_name}};
  for (const auto& [field, name] : names) {
    if (!name->empty()) spec[field] = *name;
  }
  for (const std::string& name : worker.image_pull_secrets) {
    spec["imagePullSecrets"].push_back({{"name", name}});
  }
  return spec;
}

// A NetworkPolicyPeer: all pods of these namespaces. The API server labels each namespace with its
// name.
json peers_in(const std::vector<std::string>& namespaces) {
  const json name_is_one_of = {
      {"key", "kubernetes.io/metadata.name"}, {"operator", "In"}, {"values", namespaces}};
  return {{"namespaceSelector", {{"matchExpressions", json::array({name_is_one_of})}}}};
}

}  // namespace

json metadata_of(const char* api_version, const char* kind, const api::ObjectMeta& job,
                 const std::string& name) {
  json metadata = {{"name", name},
                   {"labels",
                    {{labels::kJobName, job.name},
                     {labels::kJobUid, job.uid},
                     {labels::kManagedBy, labels::kManagedByValue},
                     {labels::kAppName, labels::kAppNameValue}}},
                   {"ownerReferences",
                    {{{"apiVersion", api_version},
                      {"kind", kind},
                      {"name", job.name},
                      {"uid", job.uid},
                      {"controller", true},
                      {"blockOwnerDeletion", true}}}}};
  if (!job.namespace_name.empty()) metadata["namespace"] = job.namespace_name;
  return metadata;
}

json key_secret(json metadata, std::string_view key) {
  json secret = {{"apiVersion", "v1"}, {"kind", "Secret"}, {"type", "Opaque"}, {"immutable", true}};
  secret["metadata"] = std::move(metadata);
  secret["stringData"] = {{kJobKeyName, std::string(key)}};
  return secret;
}

// Adds the constraint to every required node selector term, because a node needs to match only one
// of them. An empty term matches no node and stays as it is.
void constrain_nodes(const policy::NodeConstraint& constraint, json& spec) {
  json expressions = json::array();
  if (!constraint.required_label.empty()) {
    expressions.push_back(
        {{"key", constraint.required_label}, {"operator", "In"}, {"values", {"true"}}});
  }
  json fields = json::array();
  for (const std::string& node : constraint.excluded_nodes) {
    // The API server accepts one value per requirement.
    fields.push_back({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {node}}});
  }
  if (expressions.empty() && fields.empty()) return;
  json* at = &spec;
  for (const char* name : {"affinity", "nodeAffinity",
                           "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"}) {
    if (!at->is_object() && !at->is_null()) return;  // the API server rejects the pod
    at = &(*at)[name];
  }
  json& terms = *at;
  const auto extend = [](json& term, const char* name, const json& requirements) {
    json& list = term[name];
    if (!list.is_array() && !list.is_null()) return;
    for (const json& requirement : requirements) list.push_back(requirement);
    if (list.empty()) term.erase(name);
  };
  if (terms.is_null()) {
    terms = json::array({json{{"matchExpressions", json::array()}}});
  } else if (!terms.is_array()) {
    return;
  }
  for (json& term : terms) {
    if (!term.is_object() || term.empty()) continue;
    extend(term, "matchExpressions", expressions);
    extend(term, "matchFields", fields);
  }
}

std::string service_name(const api::TrainJob& job) { return job.metadata.name; }
std::string secret_name(const api::ObjectMeta& job, const std::string& key_id) {
  // Includes part of the UID: the Secret of a deleted job of the same name has another key and may
  // still exist.
  std::string name = job.name + "-job-key-" + job.uid.substr(0, 8);
  return key_id.empty() ? name : name + "-" + key_id;
}
std::string network_policy_name(const api::TrainJob& job) { return job.metadata.name; }
std::string pod_group_name(const api::TrainJob& job) { return job.metadata.name; }

std::string worker_metrics_address() { return fmt::format(":{}", kWorkerMetricsPort); }

json build_pod(const api::TrainJob& job, std::int64_t index, const PodOptions& options) {
  json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}};
  pod["metadata"] = pod_metadata(job, index, options);
  pod["spec"] = spec_of(job, index, options);
  if (!job.spec.worker.pod_template.is_null()) {
    api::strategic_merge(pod, job.spec.worker.pod_template);
    api::restrict_containers(pod["spec"]);
    // The operator finds the pod by these labels, so the template cannot change them.
    const json metadata = pod_metadata(job, index, options);
    pod["metadata"]["labels"].update(metadata["labels"]);
  }
  set_scheduler(options.gang_scheduler, pod["spec"]);
  constrain_nodes(options.node_constraint, pod["spec"]);
  pod["metadata"]["annotations"][annotations::kJobGeneration] =
      std::to_string(job.metadata.generation);
  if (!options.key_id.empty()) {
    pod["metadata"]["annotations"][annotations::kKeyId] = options.key_id;
  }
  return pod;
}

std::map<std::string, std::string> claims_of(const api::TrainJob& job) {
  json pod = {{"spec", {{"volumes", volumes_of(job, "")}}}};  // the key volume has no claim
  if (job.spec.worker.pod_template.is_object()) {
    api::strategic_merge(pod, job.spec.worker.pod_template);
  }
  std::map<std::string, std::string> claims;
  for (const json& volume : member(member(pod, "spec"), "volumes")) {
    const std::string claim = string_member(member(volume, "persistentVolumeClaim"), "claimName");
    if (!claim.empty()) claims.emplace(claim, string_member(volume, "name"));
  }
  return claims;
}

json build_service(const api::TrainJob& job) {
  json service = {{"apiVersion", "v1"}, {"kind", "Service"}};
  service["metadata"] = metadata_of(job, service_name(job));
  service["spec"] = {{"clusterIP", "None"},
                     {"publishNotReadyAddresses", true},
                     {"selector", selector_of(job)},
                     {"ports",
                      {{{"name", kTransportPortName},
                        {"port", kTransportPort},
                        {"targetPort", kTransportPort},
                        {"protocol", "TCP"}}}}};
  return service;
}

json build_secret(const api::TrainJob& job, std::string_view key, const std::string& key_id) {
  return key_secret(metadata_of(job, secret_name(job.metadata, key_id)), key);
}

json build_network_policy(const api::TrainJob& job,
                          const std::vector<std::string>& metrics_namespaces) {
  json policy = {{"apiVersion", "networking.k8s.io/v1"}, {"kind", "NetworkPolicy"}};
  policy["metadata"] = metadata_of(job, network_policy_name(job));
  // Each process of a pod listens on its own port.
  const std::int64_t last_port = api::last_transport_port(job);
  json transport = {{"protocol", "TCP"}, {"port", kTransportPort}};
  if (last_port > kTransportPort) transport["endPort"] = last_port;
  const json pods = {{"matchLabels", selector_of(job)}};
  json metrics = {{"ports", json::array({{{"protocol", "TCP"}, {"port", kWorkerMetricsPort}}})}};
  if (!metrics_namespaces.empty()) {
    const json own_namespace = {{"podSelector", json::object()}};
    metrics["from"] = {own_namespace, peers_in(metrics_namespaces)};
  }
  policy["spec"] = {
      {"podSelector", pods},
      {"policyTypes", {"Ingress"}},
      {"ingress",
       {{{"from", {{{"podSelector", pods}}}}, {"ports", json::array({transport})}}, metrics}}};
  return policy;
}

json build_pod_group(const api::TrainJob& job, const policy::Gang& gang,
                     const std::string& gang_scheduler) {
  json group = {{"kind", "PodGroup"}};
  group["metadata"] = metadata_of(job, pod_group_name(job));
  group["spec"] = {{"minMember", gang.min_member}};
  if (uses_volcano(gang_scheduler, pod_scheduler(job))) {
    group["apiVersion"] = "scheduling.volcano.sh/v1beta1";
    if (!gang.queue.empty()) group["spec"]["queue"] = gang.queue;
    if (!gang.priority_class.empty()) group["spec"]["priorityClassName"] = gang.priority_class;
  } else {
    group["apiVersion"] = "scheduling.x-k8s.io/v1alpha1";
    if (gang.schedule_timeout_seconds) {
      group["spec"]["scheduleTimeoutSeconds"] = *gang.schedule_timeout_seconds;
    }
  }
  return group;
}

}  // namespace tilewright::cluster
