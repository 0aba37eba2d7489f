// The fields of a PyTorchJob: names, descriptions, static defaults and bounds. defaults.cpp has the
// defaults that depend on other fields, validate_pytorchjob.cpp the checks that compare fields. The
// CRD made from these lists has types only: like Kubeflow's, it accepts every value of a type.
#pragma once

#include <cstdint>
#include <limits>

#include "controller/api/field.h"
#include "controller/api/pytorchjob.h"
#include "controller/api/status_fields.h"
#include "controller/api/trainjob_fields.h"

namespace tilewright::api {

inline constexpr std::int64_t kMaxMetrics = 100;
inline constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchRdzvSetting> auto& setting) {
  visitor(Field{"key", "Name of the setting."}, setting.key);
  visitor(Field{"value", "Value of the setting."}, setting.value);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchElasticPolicy> auto& policy) {
  visitor(Field{.name = "minReplicas",
                .description = "Minimum number of workers with which the training runs. Defaults "
                               "to maxReplicas, or else to the replicas of the Worker.",
                .bounds = kReplicaBounds,
                .int32 = true},
          policy.min_replicas);
  visitor(Field{.name = "maxReplicas",
                .description = "Maximum number of workers. Defaults to minReplicas, or else to the "
                               "replicas of the Worker.",
                .bounds = kReplicaBounds,
                .int32 = true},
          policy.max_replicas);
  visitor(Field{"rdzvBackend", "Rendezvous backend of torchrun. Defaults to c10d."},
          policy.rdzv_backend);
  visitor(Field{.name = "rdzvPort",
                .description = "Port of the rendezvous endpoint. Defaults to the port named "
                               "pytorchjob-port of the first worker.",
                .bounds = {1, 65535},
                .int32 = true},
          policy.rdzv_port);
  visitor(Field{"rdzvHost", "Host of the rendezvous endpoint. Defaults to the first worker."},
          policy.rdzv_host);
  visitor(Field{"rdzvId", "ID of the rendezvous (PET_RDZV_ID)."}, policy.rdzv_id);
  visitor(Field{"rdzvConf", "Settings of the rendezvous backend (PET_RDZV_CONF)."},
          policy.rdzv_conf);
  visitor(Field{"standalone",
                "If true, each worker has its own rendezvous (PET_STANDALONE), for training on one "
                "node."},
          policy.standalone);
  visitor(Field{.name = "nProcPerNode",
                .description = "Number of processes in each pod. Deprecated: use "
                               "spec.nprocPerNode.",
                .bounds = kProcessBounds,
                .int32 = true},
          policy.nproc_per_node);
  visitor(Field{.name = "maxRestarts",
                .description = "Maximum number of restarts after failures of the program "
                               "(PET_MAX_RESTARTS).",
                .bounds = kRestartBounds,
                .int32 = true},
          policy.max_restarts);
  visitor(Field{.name = "metrics",
                .description = "Metrics of a HorizontalPodAutoscaler (autoscaling/v2) that scales "
                               "the workers from minReplicas to maxReplicas. Without metrics there "
                               "is none.",
                .max_items = kMaxMetrics},
          policy.metrics);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchReplicaSpec> auto& replica) {
  visitor(Field{.name = "replicas",
                .description = "Number of pods of this type. The Master has one.",
                .default_value = "1",
                .bounds = kReplicaBounds,
                .int32 = true},
          replica.replicas);
  static const std::string kRestartPolicy =
      fmt::format("When a failed pod is restarted, as a new one. {} Defaults to OnFailure.",
                  kRestartPolicyMeanings);
  visitor(Field{.name = "restartPolicy",
                .description = kRestartPolicy.c_str(),
                .default_value = "OnFailure"},
          replica.restart_policy);
  visitor(Field{"template", "The pod, with a container named pytorch."}, replica.pod_template);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchSchedulingPolicy> auto& policy) {
  visitor(Field{.name = "minAvailable",
                .description = "Minimum number of pods that the gang scheduler starts together "
                               "(minMember of the PodGroup). Defaults to the number of all pods.",
                .bounds = {1, kMaxPods},
                .int32 = true},
          policy.common.min_available);
  visitor(Field{.name = "queue",
                .description = "Queue of the gang scheduler. Immutable.",
                .rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "self == oldSelf",
                           .message = "found a change, expected none: the queue cannot change "
                                      "after the job is created"}};
                    }},
          policy.common.queue);
  visitor(Field{.name = "minResources",
                .description = "Minimum resources of the PodGroup.",
                .schema =
                    [] {
                      return nlohmann::json{
                          {"type", "object"},
                          {"additionalProperties",
                           {{"x-kubernetes-int-or-string", true},
                            {"anyOf", {{{"type", "integer"}}, {{"type", "string"}}}}}}};
                    }},
          policy.min_resources);
  visitor(Field{"priorityClass", "Priority class of the PodGroup."}, policy.common.priority_class);
  visitor(Field{.name = "scheduleTimeoutSeconds",
                .description = "Maximum number of seconds that the PodGroup waits to be "
                               "scheduled.",
                .bounds = {1, kMaxSeconds},
                .int32 = true},
          policy.common.schedule_timeout_seconds);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchRunPolicy> auto& policy) {
  visitor.object_rules([] {
    return std::vector<Rule>{
        {.rule = "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || "
                 "self.managedBy == oldSelf.managedBy)",
         .message =
             "found a change, expected none: an operator cannot take over the job of another",
         .field_path = ".managedBy"}};
  });
  visitor(Field{.name = "cleanPodPolicy",
                .description = "Pods to delete when the job ends: None, Running or All. Defaults "
                               "to None.",
                .default_value = "None"},
          policy.clean_pod_policy);
  visitor(Field{.name = "ttlSecondsAfterFinished",
                .description = "Seconds after the end of the job until it is deleted. If unset, "
                               "the job is kept.",
                .bounds = {0, kMaxInt32},
                .int32 = true},
          policy.ttl_seconds_after_finished);
  visitor(Field{.name = "activeDeadlineSeconds",
                .description = "The job fails if it has not finished this many seconds after its "
                               "start.",
                .bounds = {1, std::numeric_limits<std::int64_t>::max()}},
          policy.active_deadline_seconds);
  visitor(Field{.name = "backoffLimit",
                .description = "Maximum number of restarts after failures of the program.",
                .bounds = {0, kMaxInt32},
                .int32 = true},
          policy.backoff_limit);
  visitor(Field{"schedulingPolicy", "Schedules the pods together with a gang scheduler."},
          policy.scheduling_policy);
  visitor(Field{.name = "suspend",
                .description = "If true, the pods are deleted, until this is false again.",
                .default_value = "false"},
          policy.suspend);
  visitor(Field{"managedBy",
                "The operator that manages the job: tilewright.dev/operator, "
                "kubeflow.org/training-operator or kueue.x-k8s.io/multikueue. Where Kubeflow's "
                "operator runs too, Tilewright's runs only the jobs that name it. Immutable."},
          policy.managed_by);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchJobSpec> auto& spec) {
  visitor(Field{"runPolicy", "Suspension, deadlines, clean-up and gang scheduling."},
          spec.run_policy);
  visitor(Field{"elasticPolicy", "Limits for the number of workers, and settings of torchrun."},
          spec.elastic_policy);
  visitor.replica_specs(Field{.name = "pytorchReplicaSpecs",
                              .description = "The pods by type: Master, Worker or both.",
                              .required = true},
                        spec.master, spec.worker);
  visitor(Field{.name = "nprocPerNode",
                .description = "Number of processes in each pod: auto, cpu, gpu, xpu or an integer "
                               "in quotes. Defaults to auto."},
          spec.nproc_per_node);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchCondition> auto& condition) {
  visitor(Field{.name = "type",
                .description = "Type of the condition. Types are stable.",
                .required = true},
          condition.type);
  visitor(Field{.name = "status",
                .description = "Whether the condition is true, false or unknown.",
                .required = true},
          condition.status);
  visitor(Field{"reason", "CamelCase word for why the condition has its status."},
          condition.reason);
  visitor(Field{"message", "Sentence that explains the reason."}, condition.message);
  visitor(Field{"lastUpdateTime", "Time when the condition was last written."},
          condition.last_update_time);
  visitor(Field{"lastTransitionTime", "Time when the status of the condition last changed."},
          condition.last_transition_time);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchReplicaStatus> auto& replica) {
  visitor(Field{.name = "active",
                .description = "Number of running pods.",
                .int32 = true,
                .omit_zero = true},
          replica.active);
  visitor(Field{.name = "succeeded",
                .description = "Number of pods that exited successfully.",
                .int32 = true,
                .omit_zero = true},
          replica.succeeded);
  visitor(Field{.name = "failed",
                .description = "Number of failed pods.",
                .int32 = true,
                .omit_zero = true},
          replica.failed);
  visitor(Field{"selector", "Label selector of the pods, for the scale subresource."},
          replica.selector);
  visitor.ignored("labelSelector");  // deprecated, replaced by selector
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<PyTorchJobStatus> auto& status) {
  visitor(Field{"conditions",
                "Conditions of the job: Created, Running, Restarting, Suspended, Succeeded, "
                "Failed. kubectl get shows the type of the last one as State."},
          status.conditions);
  visitor(Field{"replicaStatuses", "Number of pods by type and state."}, status.replica_statuses);
  visitor(Field{"startTime", "Time when the operator started the job."}, status.start_time);
  visitor(Field{"completionTime", "Time when the job succeeded or failed."},
          status.completion_time);
  visitor(Field{"lastReconcileTime", "Time when the operator last wrote the status."},
          status.last_reconcile_time);
  visitor(Field{"tilewright",
                "What Tilewright's operator records beyond Kubeflow's status: restarts by cause, "
                "failures, progress of the training."},
          status.tilewright);
}

}  // namespace tilewright::api
