#include "controller/cluster/pytorch_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <set>
#include <utility>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/kubeflow.h"
#include "common/contract/labels.h"
#include "common/contract/pod_paths.h"
#include "common/contract/ports.h"
#include "common/json/members.h"
#include "controller/api/trainjob.h"
#include "controller/cluster/gang_scheduler.h"
#include "controller/cluster/pytorch_view.h"

namespace tilewright::cluster {
namespace {

using nlohmann::json;

// Readable by every user of the pod: the template decides which user runs, and may set no fsGroup.
constexpr int kKeyMode = 0444;

std::map<std::string, std::string> labels_of(const api::PyTorchJob& job, std::string_view type) {
  return {{kubeflow::kOperatorName, kubeflow::kOperatorNameValue},
          {kubeflow::kJobName, job.metadata.name},
          {kubeflow::kReplicaType, lower_case(type)}};
}

std::map<std::string, std::string> labels_of(const api::PyTorchJob& job, const Replica& replica) {
  auto labels = labels_of(job, replica.type());
  labels[kubeflow::kReplicaIndex] = std::to_string(replica.index);
  return labels;
}

// The API server's admission of Secrets, PodGroups and others needs no labels of Kubeflow.
json owned_metadata(const api::PyTorchJob& job, const std::string& name) {
  json metadata = metadata_of(kPyTorchJobApiVersion, kPyTorchJobKind, job.metadata, name);
  // The user's image is not the application tilewright-worker.
  metadata["labels"].erase(labels::kAppName);
  return metadata;
}

json pod_metadata(const api::PyTorchJob& job, const Replica& replica, int worker_index,
                  const PodOptions& options) {
  json metadata = owned_metadata(job, replica_name(job, replica));
  const json own_labels = metadata["labels"];
  const json& from = member(replica.spec->pod_template, "metadata");
  for (const char* field : {"labels", "annotations"}) {
    for (const auto& [name, value] : member(from, field).items()) metadata[field][name] = value;
  }
  if (const json& finalizers = member(from, "finalizers"); finalizers.is_array()) {
    metadata["finalizers"] = finalizers;
  }
  // The operator finds the pod by these labels, so the template cannot change them.
  json& labels = metadata["labels"];
  labels.update(own_labels);
  labels[labels::kRole] = labels::kRoleWorker;
  labels[labels::kWorkerIndex] = std::to_string(worker_index);
  for (const auto& [name, value] : labels_of(job, replica)) labels[name] = value;
  const bool leads = job.spec.master ? replica.is_master : replica.index == 0;
  if (leads) labels[kubeflow::kJobRole] = kubeflow::kJobRoleMaster;
  if (job.spec.run_policy.scheduling_policy) {
    if (uses_volcano(options.gang_scheduler, scheduler_of(replica.spec->pod_template))) {
      metadata["annotations"][gang::kVolcanoAnnotation] = job.metadata.name;
      metadata["annotations"][gang::kVolcanoTaskAnnotation] = lower_case(replica.type());
    } else {
      labels[gang::kSchedulerPluginsLabel] = job.metadata.name;
    }
  }
  return metadata;
}

// The number in nprocPerNode; 1 for auto, cpu and gpu, as for Kubeflow's operator.
std::int64_t processes_for_world_size(const api::PyTorchJob& job) {
  const std::string text = job.spec.nproc_per_node.value_or("");
  return parse_number<std::int64_t>(text).value_or(1);
}

using Variables = std::vector<std::pair<const char*, std::string>>;

void add_master_variables(const api::PyTorchJob& job, const Replica& replica, std::int64_t replicas,
                          Variables& list) {
  const std::string port = std::to_string(api::rendezvous_port(*job.spec.master));
  const std::string address = replica_name(job, {true, 0, &*job.spec.master});
  const int rank = replica.is_master ? replica.index : replica.index + 1;
  list.insert(list.end(), {{kubeflow::variable("MASTER_PORT"), port},
                           {kubeflow::variable("PET_MASTER_PORT"), port},
                           {kubeflow::variable("MASTER_ADDR"), address},
                           {kubeflow::variable("PET_MASTER_ADDR"), address},
                           {kubeflow::variable("WORLD_SIZE"),
                            std::to_string(replicas * processes_for_world_size(job))},
                           {kubeflow::variable("RANK"), std::to_string(rank)},
                           {kubeflow::variable("PET_NODE_RANK"), std::to_string(rank)}});
}

// The store of torchrun's agents if it is the operator's, or else empty.
std::string tcpstore_of(const api::PyTorchJob& job, const PodOptions& options) {
  return uses_operator_tcpstore(job) ? options.tcpstore : "";
}

void add_elastic_variables(const api::PyTorchJob& job, const PodOptions& options, Variables& list) {
  const api::PyTorchElasticPolicy& elastic = *job.spec.elastic_policy;
  const std::string host = elastic.rdzv_host.value_or(job.metadata.name + kWorkerInfix + "0");
  const std::int64_t port = elastic.rdzv_port.value_or(
      job.spec.worker ? api::rendezvous_port(*job.spec.worker) : api::kPyTorchPort);
  const std::string tcpstore = tcpstore_of(job, options);
  list.emplace_back(kubeflow::variable("PET_RDZV_ENDPOINT"),
                    tcpstore.empty() ? fmt::format("{}:{}", host, port) : tcpstore);
  list.emplace_back(kubeflow::variable("PET_RDZV_BACKEND"), elastic.rdzv_backend.value_or("c10d"));
  list.emplace_back(
      kubeflow::variable("PET_NNODES"),
      fmt::format("{}:{}", elastic.min_replicas.value_or(1), elastic.max_replicas.value_or(1)));
  if (elastic.max_restarts) {
    list.emplace_back(kubeflow::variable("PET_MAX_RESTARTS"),
                      std::to_string(*elastic.max_restarts));
  }
  if (elastic.nproc_per_node) {
    list.emplace_back(kubeflow::variable("PET_NPROC_PER_NODE"),
                      std::to_string(*elastic.nproc_per_node));
  }
  if (elastic.rdzv_id) list.emplace_back(kubeflow::variable("PET_RDZV_ID"), *elastic.rdzv_id);
  if (!elastic.rdzv_conf.empty()) {
    std::string settings;
    for (const api::PyTorchRdzvSetting& setting : elastic.rdzv_conf) {
      settings += fmt::format("{}{}={}", settings.empty() ? "" : ",", setting.key, setting.value);
    }
    list.emplace_back(kubeflow::variable("PET_RDZV_CONF"), settings);
  }
  // torchrun reads the variable with int() and ends at Kubeflow's empty value.
  if (elastic.standalone.value_or(false)) {
    list.emplace_back(kubeflow::variable("PET_STANDALONE"), "1");
  }
}

// The variables that Kubeflow's operator adds to each container, in its order.
Variables kubeflow_variables(const api::PyTorchJob& job, const Replica& replica,
                             const PodOptions& options) {
  std::int64_t replicas = 0;
  for (const auto* each : {&job.spec.master, &job.spec.worker}) {
    if (*each) replicas += (*each)->replicas.value_or(1);
  }
  Variables list = {{kubeflow::variable("PYTHONUNBUFFERED"), "1"}};
  if (job.spec.master) add_master_variables(job, replica, replicas, list);
  if (job.spec.nproc_per_node) {
    list.emplace_back(kubeflow::variable("PET_NPROC_PER_NODE"), *job.spec.nproc_per_node);
  }
  if (job.spec.elastic_policy) {
    add_elastic_variables(job, options, list);
  } else {
    list.emplace_back(kubeflow::variable("PET_NNODES"), std::to_string(replicas));
  }
  return list;
}

// With these the image of Tilewright's worker joins the rendezvous. Other images ignore them.
Variables tilewright_variables(const api::PyTorchJob& job, int worker_index,
                               const PodOptions& options) {
  Variables list = {{env::kJobName, job.metadata.name},
                    {env::kJobUid, job.metadata.uid},
                    {env::kJobKeyFile, job_key_path()},
                    {env::kRendezvous, options.rendezvous},
                    {env::kWorkerIndex, std::to_string(worker_index)},
                    {env::kMetricsAddress, worker_metrics_address()},
                    {env::kTransportPort, std::to_string(kTransportPort)}};
  const JobView view = view_of(job);
  if (api::rdzv_conf(view.job).tls) list.emplace_back(env::kTls, "true");
  // Never changes, so a recreated pod expands $(date ...) in its command as the first one did.
  if (job.metadata.creation_timestamp) {
    const auto since_1970 = job.metadata.creation_timestamp->time_since_epoch();
    list.emplace_back(
        env::kLaunchTime,
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(since_1970).count()));
  }
  list.emplace_back(env::kNominalWorkers, std::to_string(api::nominal_workers(view.job)));
  if (!view.trains_natively) return list;
  list.emplace_back(env::kVirtualShards, std::to_string(api::virtual_shards(view.job)));
  const std::string& kept = view.job.status.output_directory;
  const std::string& directory = kept.empty() ? view.traits.output_directory : kept;
  if (!directory.empty()) list.emplace_back(env::kOutputDir, directory);
  return list;
}

// Appended to the template's, so that these values count: the last entry of a name does.
void append_variables(const Variables& variables, json& container) {
  json& list = container["env"];
  if (!list.is_array()) list = json::array();
  for (const auto& [name, value] : variables) list.push_back({{"name", name}, {"value", value}});
}

void set_unless_given(const char* name, const std::string& value, json& container) {
  if (element_with(container["env"], "name", name).is_null()) {
    append_variables({{name, value}}, container);
  }
}

// Replaces the element of that name, or appends it.
void set_named(json& list, json element) {
  if (!list.is_array()) list = json::array();
  for (json& each : list) {
    if (string_member(each, "name") == string_member(element, "name")) {
      each = std::move(element);
      return;
    }
  }
  list.push_back(std::move(element));
}

void set_default_port(json& container) {
  json& ports = container["ports"];
  if (!ports.is_array()) ports = json::array();
  if (element_with(ports, "name", api::kPyTorchPortName).is_null()) {
    ports.push_back({{"name", api::kPyTorchPortName}, {"containerPort", api::kPyTorchPort}});
  }
}

json spec_of(const api::PyTorchJob& job, const Replica& replica, int worker_index,
             const PodOptions& options) {
  json spec = member(replica.spec->pod_template, "spec");
  if (!spec.is_object()) spec = json::object();
  spec["restartPolicy"] = "Never";  // the operator decides on restarts and creates a new pod
  const Variables variables = kubeflow_variables(job, replica, options);
  const json grace = member(spec, "terminationGracePeriodSeconds");
  if (!spec["containers"].is_array()) return spec;  // the API server rejects the pod
  for (json& container : spec["containers"]) {
    if (!container.is_object()) continue;
    append_variables(variables, container);
    // By default the agent of rank 0 serves the store of the workers, too. If it dies, the other
    // agents of torch 2.15 keep its address, and three agents or more hang.
    if (!tcpstore_of(job, options).empty()) {
      set_unless_given(kubeflow::variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE"), "1", container);
    }
    if (grace.is_number_integer()) {
      set_unless_given(kubeflow::variable("PET_SHUTDOWN_TIMEOUT"), grace.dump(), container);
    }
    if (string_member(container, "name") != api::kPyTorchContainer) continue;
    set_default_port(container);
    append_variables(tilewright_variables(job, worker_index, options), container);
    json& mounts = container["volumeMounts"];
    if (!mounts.is_array()) mounts = json::array();
    set_named(mounts, {{"name", kKeyVolume}, {"mountPath", kJobKeyDirectory}, {"readOnly", true}});
    // Puts the last log lines into the pod's status, so that the operator needs no right to read
    // logs.
    if (!container.contains("terminationMessagePolicy")) {
      container["terminationMessagePolicy"] = "FallbackToLogsOnError";
    }
  }
  set_named(
      spec["volumes"],
      {{"name", kKeyVolume},
       {"secret",
        {{"secretName", secret_name(job.metadata, options.key_id)}, {"defaultMode", kKeyMode}}}});
  return spec;
}

// Sums of the containers' requests, which default to their limits, of `pods` pods: first those of
// the master. Amounts that are no quantities are left out.
json min_resources_of(const api::PyTorchJob& job, std::int64_t pods) {
  std::map<std::string, std::int64_t> milli;
  for (const auto* replica : {&job.spec.master, &job.spec.worker}) {
    if (!*replica) continue;
    const std::int64_t count = std::min(pods, (*replica)->replicas.value_or(1));
    pods -= count;
    const json& containers = member(member((*replica)->pod_template, "spec"), "containers");
    for (std::size_t i = 0; containers.is_array() && i < containers.size(); ++i) {
      const json& resources = member(containers[i], "resources");
      const json& requests = member(resources, "requests");
      const json& amounts = requests.is_object() ? requests : member(resources, "limits");
      for (const auto& [name, value] : amounts.items()) {
        const auto amount =
            api::parse_quantity(value.is_string() ? value.get<std::string>() : value.dump());
        std::int64_t product = 0;
        if (!amount || __builtin_mul_overflow(amount->milli, count, &product)) continue;
        std::int64_t& sum = milli[name];
        if (__builtin_add_overflow(sum, product, &sum)) {
          sum = std::numeric_limits<std::int64_t>::max();
        }
      }
    }
  }
  json sums = json::object();
  for (const auto& [name, sum] : milli) {
    sums[name] = sum % 1000 == 0 ? std::to_string(sum / 1000) : fmt::format("{}m", sum);
  }
  return sums;
}

}  // namespace

Replica replica_of(const api::PyTorchJob& job, int worker_index) {
  if (job.spec.master && (worker_index == 0 || !job.spec.worker)) {
    return {true, worker_index, &*job.spec.master};
  }
  const int index = job.spec.master ? worker_index - 1 : worker_index;
  return {false, index, job.spec.worker ? &*job.spec.worker : nullptr};
}

std::string replica_name(const api::PyTorchJob& job, const Replica& replica) {
  const char* infix = replica.is_master ? kMasterInfix : kWorkerInfix;
  return job.metadata.name + infix + std::to_string(replica.index);
}

std::string replica_selector(const api::PyTorchJob& job, std::string_view type) {
  std::string selector;
  for (const auto& [name, value] : labels_of(job, type)) {
    selector += fmt::format("{}{}={}", selector.empty() ? "" : ",", name, value);
  }
  return selector;
}

bool uses_operator_tcpstore(const api::PyTorchJob& job) {
  if (!job.spec.elastic_policy) return false;
  const api::PyTorchElasticPolicy& elastic = *job.spec.elastic_policy;
  for (const auto* replicas : {&job.spec.master, &job.spec.worker}) {
    if (!*replicas) continue;
    if ((*replicas)->restart_policy == api::RestartPolicy::kNever) return false;
    const json& pod = member((*replicas)->pod_template, "spec");
    if (member(pod, "hostNetwork") == json(true)) return false;
  }
  return elastic.rdzv_backend.value_or("c10d") == "c10d" && !elastic.rdzv_host &&
         !elastic.rdzv_port && !elastic.standalone.value_or(false);
}

json build_pod(const api::PyTorchJob& job, int worker_index, const PodOptions& options) {
  const Replica replica = replica_of(job, worker_index);
  json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}};
  pod["metadata"] = pod_metadata(job, replica, worker_index, options);
  pod["spec"] = spec_of(job, replica, worker_index, options);
  set_scheduler(options.gang_scheduler, pod["spec"]);
  constrain_nodes(options.node_constraint, pod["spec"]);
  json& annotations = pod["metadata"]["annotations"];
  annotations[annotations::kJobGeneration] = std::to_string(job.metadata.generation);
  if (!options.key_id.empty()) annotations[annotations::kKeyId] = options.key_id;
  annotations.erase(annotations::kTcpStore);  // not the template's
  if (const std::string tcpstore = tcpstore_of(job, options); !tcpstore.empty()) {
    annotations[annotations::kTcpStore] = tcpstore;
  }
  return pod;
}

json build_service(const api::PyTorchJob& job, int worker_index) {
  const Replica replica = replica_of(job, worker_index);
  json service = {{"apiVersion", "v1"}, {"kind", "Service"}};
  service["metadata"] = owned_metadata(job, replica_name(job, replica));
  const auto selector = labels_of(job, replica);
  for (const auto& [name, value] : selector) service["metadata"]["labels"][name] = value;
  json ports = json::array();
  std::set<std::string> names;
  const auto add = [&](const std::string& name, const json& number) {
    if (!name.empty() && names.insert(name).second) {
      ports.push_back({{"name", name}, {"port", number}});
    }
  };
  const json* container = replica.spec == nullptr ? nullptr : api::pytorch_container(*replica.spec);
  if (container != nullptr) {
    const json& list = member(*container, "ports");
    for (std::size_t i = 0; list.is_array() && i < list.size(); ++i) {
      add(string_member(list[i], "name"), member(list[i], "containerPort"));
    }
  }
  add(api::kPyTorchPortName, api::kPyTorchPort);
  service["spec"] = {{"clusterIP", "None"},
                     // The name must resolve while the pods still wait for each other.
                     {"publishNotReadyAddresses", true},
                     {"selector", selector},
                     {"ports", std::move(ports)}};
  return service;
}

json build_secret(const api::PyTorchJob& job, std::string_view key, const std::string& key_id) {
  return key_secret(owned_metadata(job, secret_name(job.metadata, key_id)), key);
}

json build_pod_group(const api::PyTorchJob& job, const policy::Gang& gang,
                     const std::string& gang_scheduler) {
  const auto& scheduling = job.spec.run_policy.scheduling_policy;
  json group = {{"kind", "PodGroup"}};
  group["metadata"] = owned_metadata(job, job.metadata.name);
  json resources = scheduling ? scheduling->min_resources : json();
  if (resources.is_null()) resources = min_resources_of(job, gang.min_member);
  group["spec"] = {{"minMember", gang.min_member}, {"minResources", std::move(resources)}};
  const auto& workers = job.spec.worker ? job.spec.worker : job.spec.master;
  if (workers && uses_volcano(gang_scheduler, scheduler_of(workers->pod_template))) {
    group["apiVersion"] = "scheduling.volcano.sh/v1beta1";
    group["spec"]["queue"] = gang.queue.empty() ? "default" : gang.queue;
    if (!gang.priority_class.empty()) group["spec"]["priorityClassName"] = gang.priority_class;
  } else {
    group["apiVersion"] = "scheduling.x-k8s.io/v1alpha1";
    if (gang.schedule_timeout_seconds) {
      group["spec"]["scheduleTimeoutSeconds"] = *gang.schedule_timeout_seconds;
    }
  }
  return group;
}

bool has_autoscaler(const api::PyTorchJob& job) {
  return job.spec.elastic_policy && job.spec.elastic_policy->metrics.is_array() &&
         !job.spec.elastic_policy->metrics.empty();
}

json build_autoscaler(const api::PyTorchJob& job) {
  const api::PyTorchElasticPolicy& elastic = *job.spec.elastic_policy;
  json autoscaler = {{"apiVersion", "autoscaling/v2"}, {"kind", "HorizontalPodAutoscaler"}};
  autoscaler["metadata"] = owned_metadata(job, job.metadata.name);
  autoscaler["spec"] = {{"scaleTargetRef",
                         {{"apiVersion", kPyTorchJobApiVersion},
                          {"kind", kPyTorchJobKind},
                          {"name", job.metadata.name}}},
                        {"minReplicas", elastic.min_replicas.value_or(1)},
                        {"maxReplicas", elastic.max_replicas.value_or(1)},
                        {"metrics", elastic.metrics}};
  return autoscaler;
}

}  // namespace tilewright::cluster
