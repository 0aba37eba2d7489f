#include "controller/api/encode.h"

#include <charconv>

#include "common/base/check.h"
#include "common/contract/labels.h"
#include "common/contract/training_flags.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

// Members that were left out stay out.
template <typename T>
void put(json& object, const char* name, const std::optional<T>& value) {
  if (value) object[name] = *value;
}
template <typename Enum>
void put_word(json& object, const char* name, const std::optional<Enum>& value) {
  if (value) object[name] = std::string(to_string(*value));
}
void put(json& object, const char* name, const std::string& value) {
  if (!value.empty()) object[name] = value;
}
template <typename Container>
void put_all(json& object, const char* name, const Container& values) {
  if (!values.empty()) object[name] = values;
}
void put_raw(json& object, const char* name, const json& value) {
  if (!value.is_null()) object[name] = value;
}
void put_time(json& object, const char* name, const Timestamp& time) {
  if (time) object[name] = to_rfc3339(*time);
}
void put_object(json& object, const char* name, json value) {
  if (!value.empty()) object[name] = std::move(value);
}

// A flag's value by its type, as the manifest had it.
json flag_json(const std::string& name, const std::string& text) {
  const TrainingFlag* flag = find_training_flag(name);
  TW_CHECK(flag != nullptr, "there is no training flag --{}", name);
  switch (flag->type) {
    case FlagType::kBool:
      return text == "true";
    case FlagType::kInt: {
      std::int64_t number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      return number;
    }
    case FlagType::kFloat: {
      double number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      return number;
    }
    case FlagType::kString:
    case FlagType::kChoice:
      break;
  }
  return text;
}

json trainer_json(const Trainer& trainer) {
  json object = json::object();
  put(object, "task", trainer.task);
  put(object, "model", trainer.model);
  put(object, "data", trainer.data);
  put(object, "output", trainer.output);
  for (const auto& [name, text] : trainer.flags) object[name] = flag_json(name, text);
  put_all(object, "args", trainer.args);
  return object;
}

json run_policy_json(const RunPolicy& policy) {
  json object = json::object();
  put(object, "suspend", policy.suspend);
  put(object, "ttlSecondsAfterFinished", policy.ttl_seconds_after_finished);
  put(object, "activeDeadlineSeconds", policy.active_deadline_seconds);
  put(object, "backoffLimit", policy.backoff_limit);
  put_word(object, "cleanPodPolicy", policy.clean_pod_policy);
  if (policy.scheduling_policy) {
    json scheduling = json::object();
    put(scheduling, "minAvailable", policy.scheduling_policy->min_available);
    put(scheduling, "queue", policy.scheduling_policy->queue);
    put(scheduling, "priorityClass", policy.scheduling_policy->priority_class);
    put(scheduling, "scheduleTimeoutSeconds", policy.scheduling_policy->schedule_timeout_seconds);
    object["schedulingPolicy"] = std::move(scheduling);
  }
  return object;
}

json worker_json(const Worker& worker) {
  json object = json::object();
  put(object, "replicas", worker.replicas);
  put(object, "image", worker.image);
  put_word(object, "imagePullPolicy", worker.image_pull_policy);
  put_word(object, "restartPolicy", worker.restart_policy);
  for (const auto& [name, amount] : worker.resources) object["resources"][name] = amount.text;
  if (worker.shared_memory) object["sharedMemory"] = worker.shared_memory->text;
  put_all(object, "nodeSelector", worker.node_selector);
  put_raw(object, "tolerations", worker.tolerations);
  put_raw(object, "affinity", worker.affinity);
  put_raw(object, "topologySpreadConstraints", worker.topology_spread_constraints);
  for (const EnvVar& variable : worker.env) {
    json entry = {{"name", variable.name}};
    put(entry, "value", variable.value);
    put_raw(entry, "valueFrom", variable.value_from);
    object["env"].push_back(std::move(entry));
  }
  put(object, "serviceAccountName", worker.service_account_name);
  put(object, "priorityClassName", worker.priority_class_name);
  put(object, "schedulerName", worker.scheduler_name);
  for (const std::string& name : worker.image_pull_secrets) {
    object["imagePullSecrets"].push_back({{"name", name}});
  }
  put(object, "runAsUser", worker.run_as_user);
  put(object, "fsGroup", worker.fs_group);
  put(object, "terminationGracePeriodSeconds", worker.termination_grace_period_seconds);
  put_raw(object, "podTemplate", worker.pod_template);
  return object;
}

json spec_json(const TrainJobSpec& spec) {
  json object = json::object();
  put(object, "nprocPerNode", spec.nproc_per_node);
  json elastic = json::object();
  put(elastic, "rdzvBackend", spec.elastic_policy.rdzv_backend);
  for (const RdzvSetting& setting : spec.elastic_policy.rdzv_conf) {
    elastic["rdzvConf"].push_back({{"key", setting.key}, {"value", setting.value}});
  }
  put(elastic, "minReplicas", spec.elastic_policy.min_replicas);
  put(elastic, "maxReplicas", spec.elastic_policy.max_replicas);
  put(elastic, "maxRestarts", spec.elastic_policy.max_restarts);
  put_object(object, "elasticPolicy", std::move(elastic));
  put_object(object, "runPolicy", run_policy_json(spec.run_policy));
  put_object(object, "trainer", trainer_json(spec.trainer));
  put_object(object, "worker", worker_json(spec.worker));
  for (const Volume& volume : spec.volumes) {
    json entry = volume.source.is_null() ? json::object() : volume.source;
    entry["name"] = volume.name;
    put(entry, "local", volume.local);
    object["volumes"].push_back(std::move(entry));
  }
  return object;
}

}  // namespace

json to_json(const ObjectMeta& metadata) {
  json object = json::object();
  put(object, "name", metadata.name);
  put(object, "generateName", metadata.generate_name);
  put(object, "namespace", metadata.namespace_name);
  put(object, "uid", metadata.uid);
  put(object, "resourceVersion", metadata.resource_version);
  if (metadata.generation != 0) object["generation"] = metadata.generation;
  put_time(object, "creationTimestamp", metadata.creation_timestamp);
  put_time(object, "deletionTimestamp", metadata.deletion_timestamp);
  put_all(object, "labels", metadata.labels);
  put_all(object, "annotations", metadata.annotations);
  put_all(object, "finalizers", metadata.finalizers);
  put_raw(object, "ownerReferences", metadata.owner_references);
  return object;
}

json to_json(const TrainJob& job) {
  json object = {{"apiVersion", kApiVersion}, {"kind", kTrainJobKind}};
  object["metadata"] = to_json(job.metadata);
  object["spec"] = spec_json(job.spec);
  if (!(job.status == TrainJobStatus())) object["status"] = to_json(job.status);
  return object;
}

}  // namespace tilewright::api
