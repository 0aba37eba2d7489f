// The fields of a TrainJob's spec: names, descriptions, defaults, bounds, immutability and CEL
// rules.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/version.h"
#include "common/contract/training_flags.h"
#include "controller/api/cel.h"
#include "controller/api/field.h"
#include "controller/api/pod_template_schema.h"
#include "controller/api/trainer_path.h"
#include "controller/api/trainjob.h"
#include "controller/api/volume_sources.h"

namespace tilewright::api {

inline constexpr Bounds kProcessBounds = {1, kMaxProcessesPerNode};  // per pod
inline constexpr Bounds kReplicaBounds = {1, kMaxReplicas};
inline constexpr Bounds kRestartBounds = {0, 1'000'000};
inline constexpr Bounds kIdBounds = {1, (std::int64_t{1} << 31) - 1};  // of users and groups
inline constexpr std::int64_t kMaxGraceSeconds = 24 * 3600;
// maxLength of a string of each kind.
inline constexpr std::int64_t kNameLength = 253;
inline constexpr std::int64_t kLabelLength = 63;
inline constexpr std::int64_t kPathLength = 1024;
inline constexpr std::int64_t kWordLength = 4096;

inline constexpr std::array<std::string_view, 1> kRdzvBackends = {"c10d"};
inline constexpr const char* kDefaultMemory = "4Gi";
inline constexpr std::array<std::pair<const char*, const char*>, 2> kDefaultResources = {
    {{"cpu", "1"}, {"memory", kDefaultMemory}}};

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<RdzvSetting> auto& setting) {
  visitor.object_rules([] {
    return std::vector<Rule>{
        {.rule = "self.key != 'tls' || self.value in ['true', 'false']",
         .message_expression =
             "\"found \\\"%s\\\" for tls, expected true or false\".format([self.value])"},
        {.rule = "self.key == 'tls' || (self.value.matches('^([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?"
                 "[0-9]+)?$') && double(self.value) > 0.0 && double(self.value) <= 86400.0)",
         .message_expression = "\"found \\\"%s\\\" for %s, expected a number above 0 and up to "
                               "86400\".format([self.value, self.key])"}};
  });
  visitor(Field{.name = "key",
                .description =
                    "Name of the setting: tls, keep_alive_interval or keep_alive_max_attempt.",
                .choices = kRdzvConfKeys,
                .required = true},
          setting.key);
  visitor(Field{.name = "value",
                .description =
                    "Value of the setting: \"true\" or \"false\" for tls, otherwise a number.",
                .max_length = 1024,
                .required = true},
          setting.value);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<ElasticPolicy> auto& policy) {
  visitor(Field{.name = "rdzvBackend",
                .description = "Rendezvous backend, as in a PyTorchJob. The only value is c10d.",
                .default_value = "c10d",
                .choices = kRdzvBackends},
          policy.rdzv_backend);
  visitor(Field{.name = "rdzvConf",
                .description =
                    "Rendezvous settings. {key: tls, value: \"true\"} encrypts all traffic of the "
                    "workers with TLS. keep_alive_interval and keep_alive_max_attempt are "
                    "torchrun's: a worker that sends no heartbeat for the product of both, in "
                    "seconds, is lost; 10 s if neither is set, otherwise their defaults are 5 and "
                    "3. Immutable.",
                .max_items = 16,
                .list_key = "key",
                .immutable = "running workers cannot change how they communicate"},
          policy.rdzv_conf);
  visitor(Field{.name = "minReplicas",
                .description = "Minimum number of workers with which the training continues. "
                               "Defaults to worker.replicas.",
                .bounds = kReplicaBounds,
                .spec_rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "!has(self.elasticPolicy.minReplicas) || "
                                   "!has(self.elasticPolicy.maxReplicas) || "
                                   "self.elasticPolicy.minReplicas <= "
                                   "self.elasticPolicy.maxReplicas",
                           .message_expression =
                               "\"found %d, expected at most %d, the value of "
                               "spec.elasticPolicy.maxReplicas\".format([self.elasticPolicy."
                               "minReplicas, self.elasticPolicy.maxReplicas])"},
                          {.rule = "self.elasticPolicy.?minReplicas.orValue(1) <= "
                                   "self.worker.replicas",
                           .message_expression =
                               "\"found %d, expected at most %d, the value of "
                               "spec.worker.replicas\".format([self.elasticPolicy.minReplicas, "
                               "self.worker.replicas])"}};
                    }},
          policy.min_replicas);
  visitor(Field{.name = "maxReplicas",
                .description = "Maximum number of workers. Defaults to worker.replicas.",
                .bounds = kReplicaBounds,
                .spec_rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "!has(self.elasticPolicy.maxReplicas) || "
                                   "self.elasticPolicy.maxReplicas >= self.worker.replicas",
                           .message_expression =
                               "\"found %d, expected at least %d, the value of "
                               "spec.worker.replicas\".format([self.elasticPolicy.maxReplicas, "
                               "self.worker.replicas])"}};
                    },
                .job_rules = cel::max_replicas_limits},
          policy.max_replicas);
  visitor(Field{.name = "maxRestarts",
                .description =
                    "Maximum number of restarts after failures of the program, of all workers "
                    "together and over the lifetime of the job. Failures that follow another "
                    "worker's before the job runs again do not count. Defaults to "
                    "runPolicy.backoffLimit, or else to 3.",
                .bounds = kRestartBounds},
          policy.max_restarts);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<SchedulingPolicy> auto& policy) {
  visitor(Field{.name = "minAvailable",
                .description = "Minimum number of workers that the gang scheduler starts "
                               "together (minMember of the PodGroup). Defaults to "
                               "elasticPolicy.minReplicas.",
                .spec_rules =
                    [] {
                      const std::string most =
                          "self.elasticPolicy.?maxReplicas.orValue(self.worker.replicas)";
                      const std::string least =
                          "self.runPolicy.?schedulingPolicy.?minAvailable.orValue(1)";
                      return std::vector<Rule>{
                          {.rule = least + " >= 1 && " + least + " <= " + most,
                           .message_expression =
                               "\"found %d, expected an integer from 1 to %d\".format([self."
                               "runPolicy.schedulingPolicy.minAvailable, " +
                               most + "])"}};
                    }},
          policy.min_available);
  visitor(Field{.name = "queue",
                .description = "Queue of the gang scheduler.",
                .max_length = kNameLength},
          policy.queue);
  visitor(Field{.name = "priorityClass",
                .description = "Priority class of the PodGroup.",
                .max_length = kNameLength},
          policy.priority_class);
  visitor(Field{.name = "scheduleTimeoutSeconds",
                .description = "Maximum number of seconds that the PodGroup waits to be "
                               "scheduled.",
                .bounds = {1, kMaxSeconds}},
          policy.schedule_timeout_seconds);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<RunPolicy> auto& policy) {
  visitor(Field{.name = "suspend",
                .description = "If true, the worker pods are deleted. The training resumes from "
                               "its last checkpoint when this is false again.",
                .default_value = "false"},
          policy.suspend);
  visitor(Field{.name = "ttlSecondsAfterFinished",
                .description = "Seconds after the end of the job until it is deleted. If unset, "
                               "the job is kept.",
                .bounds = {0, kMaxSeconds}},
          policy.ttl_seconds_after_finished);
  visitor(Field{.name = "activeDeadlineSeconds",
                .description = "The job fails if it has not finished this many seconds after its "
                               "start. The time in which its pods are Pending is included. The "
                               "time starts again when a suspended job resumes.",
                .bounds = {1, kMaxSeconds}},
          policy.active_deadline_seconds);
  visitor(Field{.name = "backoffLimit",
                .description = "Same as elasticPolicy.maxRestarts.",
                .bounds = kRestartBounds,
                .spec_rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "!has(self.runPolicy.backoffLimit) || "
                                   "!has(self.elasticPolicy.maxRestarts) || "
                                   "self.runPolicy.backoffLimit == self.elasticPolicy.maxRestarts",
                           .message_expression =
                               "\"found %d, expected %d, the value of "
                               "spec.elasticPolicy.maxRestarts, or only one of the two fields\""
                               ".format([self.runPolicy.backoffLimit, "
                               "self.elasticPolicy.maxRestarts])"}};
                    }},
          policy.backoff_limit);
  visitor(Field{.name = "cleanPodPolicy",
                .description = "Pods to delete when the job ends. None: no pods. Running: those "
                               "that are still running. All: all pods, and the other objects "
                               "that the operator created for the job.",
                .default_value = "Running"},
          policy.clean_pod_policy);
  visitor(Field{.name = "schedulingPolicy",
                .description = "Schedules the workers together with a gang scheduler (Volcano or "
                               "scheduler-plugins). Immutable.",
                .immutable = "this field cannot change after the job is created"},
          policy.scheduling_policy);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<Trainer> auto& trainer) {
  visitor.object_rules([] {
    return std::vector<Rule>{
        {.rule = "self.?do_train.orValue(true) || self.?do_eval.orValue(true) || "
                 "self.?do_predict.orValue(false) || has(self.args)",
         .message = "found do_train=false and do_eval=false, expected at least one of them, or "
                    "do_predict, true",
         .field_path = ".do_train"},
        cel::some_task()};
  });
  visitor(Field{.name = "task",
                .description = "Task that the model is trained on. Optional with dataset_name, and "
                               "for a classification or regression of your own train_file, "
                               "validation_file and test_file.",
                .alias = "task_name",
                .choices = find_training_flag("task_name")->choices},
          trainer.task);
  visitor(Field{.name = "model",
                .description = "Pre-trained model: a directory in Hugging Face format, or a name "
                               "on the Hugging Face hub such as google-bert/bert-base-uncased.",
                .alias = "model_name_or_path",
                .expected = kExpectedNameOrPath,
                .max_length = kPathLength,
                .rules =
                    [] {
                      return std::vector<Rule>{cel::name_or_trainer_path(cel::EmptyPath::kRefused)};
                    },
                .spec_rules = [] { return cel::path_references("model", "model_name_or_path"); }},
          trainer.model);
  visitor(
      Field{.name = "data",
            .description = "Directory with the train and dev files of the task. If unset, the "
                           "task's data set is downloaded from the Hugging Face hub.",
            .alias = "data_dir",
            .max_length = kPathLength,
            .rules = [] { return std::vector<Rule>{cel::trainer_path(cel::EmptyPath::kRefused)}; },
            .spec_rules = [] { return cel::path_references("data", "data_dir"); }},
      trainer.data);
  visitor(Field{.name = "output",
                .description = "Directory for checkpoints, the trained model and its results.",
                .alias = "output_dir",
                .expected = kExpectedPath,
                .max_length = kPathLength,
                .rules =
                    [] {
                      return std::vector<Rule>{cel::trainer_path(cel::EmptyPath::kRefused),
                                               cel::below_volume()};
                    },
                .spec_rules =
                    [] {
                      std::vector<Rule> rules = cel::path_references("output", "output_dir");
                      rules.push_back(cel::writable_output());
                      return rules;
                    }},
          trainer.output);
  visitor(
      Field{.name = "cache",
            .description = "Directory for downloads from the Hugging Face hub, shared by the "
                           "workers. If unset, each pod downloads them to its own /tmp unless "
                           "worker.env sets HF_HOME or HF_HUB_CACHE.",
            .alias = "cache_dir",
            .max_length = kPathLength,
            .rules = [] { return std::vector<Rule>{cel::trainer_path(cel::EmptyPath::kRefused)}; },
            .spec_rules = [] { return cel::path_references("cache", "cache_dir"); }},
      trainer.cache);
  visitor.training_flags(trainer.flags);
  visitor.training_arguments(
      Field{.name = "args",
            .description =
                "Flags as on the command line of run_glue.py or run_qa.py: --name=value, "
                "--name and value as two list items, or --name alone. They set the fields of "
                "spec.trainer. A flag may be given here or as a field, not both.",
            .max_length = kWordLength,
            .max_items = 128,
            .value_rules = cel::trainer_args},
      trainer.flags);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<EnvVar> auto& variable) {
  visitor.object_rules([] {
    return std::vector<Rule>{
        {.rule = "!has(self.valueFrom) || !has(self.value) || self.value == ''",
         .message = "found value and valueFrom, expected one of them"}};
  });
  visitor(Field{.name = "name",
                .description = "Name of the variable.",
                .max_length = 256,
                .required = true,
                .rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "self.matches('^[ -<>-~]+$')",
                           .message_expression = cel::found("the name of an environment variable",
                                                            "self == \"\" ? \"nothing\" : self")},
                          {.rule = "!(self in " + cel::runtime_variable_list() + ")",
                           .message_expression =
                               cel::found("a name that the operator does not set itself")}};
                    }},
          variable.name);
  visitor(Field{.name = "value",
                .description = "Value of the variable. Empty if neither value nor valueFrom is "
                               "set.",
                .max_length = 65536},
          variable.value);
  visitor(Field{"valueFrom",
                "Source of the value, as in a pod. Trainer paths cannot refer to such a variable."},
          variable.value_from);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<Worker> auto& worker) {
  visitor(Field{.name = "replicas",
                .description = "Desired number of workers. kubectl scale sets this field.",
                .default_value = "1",
                .bounds = kReplicaBounds,
                .spec_rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "has(self.elasticPolicy.maxReplicas) || self.worker.replicas <= "
                                   "oldSelf.worker.replicas",
                           .message_expression =
                               "\"found %d, expected at most %d: a job without "
                               "spec.elasticPolicy.maxReplicas cannot grow\".format([self.worker."
                               "replicas, oldSelf.worker.replicas])"},
                          {.rule = "has(self.elasticPolicy.minReplicas) || self.worker.replicas >= "
                                   "oldSelf.worker.replicas",
                           .message_expression =
                               "\"found %d, expected at least %d: a job without "
                               "spec.elasticPolicy.minReplicas cannot shrink\".format([self.worker."
                               "replicas, oldSelf.worker.replicas])"}};
                    }},
          worker.replicas);
  static const std::string kDefaultImage = std::string("tilewright-worker:") + kVersion;
  visitor(Field{.name = "image",
                .description = "Image of the worker.",
                .default_value = kDefaultImage.c_str(),
                .max_length = 1024,
                .rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "!self.matches('[ \\t\\n]')",
                           .message_expression = cel::found("an image name without whitespace")}};
                    }},
          worker.image);
  visitor(Field{"imagePullPolicy", "When the image is pulled."}, worker.image_pull_policy);
  static const std::string kRestartPolicy = fmt::format(
      "When a failed worker is restarted, in a new pod. {} With every policy, exit codes 2 (a bad "
      "flag or variable) and 14 (the output directory is refused) fail the job, because a restart "
      "would fail again. elasticPolicy.maxRestarts limits the restarts after failures of the "
      "program.",
      kRestartPolicyMeanings);
  visitor(Field{.name = "restartPolicy",
                .description = kRestartPolicy.c_str(),
                .default_value = "OnFailure"},
          worker.restart_policy);
  visitor(Field{.name = "resources",
                .description =
                    "Resources of each worker: cpu, memory, ephemeral-storage, hugepages-SIZE or "
                    "an extended resource such as example.org/device. Each amount is both request "
                    "and limit. With the kubelet's static CPU manager policy, an integer number "
                    "of CPUs gives the worker exclusive CPUs.",
                .default_entries = kDefaultResources,
                .max_items = 32,
                .rules = cel::resources,
                .value_rules = cel::quantity},
          worker.resources);
  visitor(Field{.name = "sharedMemory",
                .description = "Size of /dev/shm. Its pages count against resources.memory.",
                .default_value = "64Mi",
                .rules = cel::quantity,
                .spec_rules =
                    [] {
                      const std::string memory =
                          std::string(
                              "'memory' in self.worker.resources ? "
                              "string(self.worker.resources['memory']) : '") +
                          kDefaultMemory + "'";
                      return std::vector<Rule>{
                          {.rule = "!isQuantity(string(self.worker.sharedMemory)) || 'memory' in "
                                   "self.worker.resources && "
                                   "!isQuantity(string(self.worker.resources['memory'])) || "
                                   "quantity(string(self.worker.sharedMemory)).isLessThan(quantity("
                                   "" +
                                   memory + "))",
                           .message_expression =
                               "\"found %s, expected less than %s, the value of "
                               "spec.worker.resources.memory: pages of /dev/shm count against it\""
                               ".format([string(self.worker.sharedMemory), " +
                               memory + "])"}};
                    }},
          worker.shared_memory);
  visitor(Field{.name = "nodeSelector",
                .description = "Labels of the nodes that may run the workers.",
                .max_length = kLabelLength,
                .max_items = 64,
                .rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = std::string("self.all(key, size(key) <= 317 && key.matches('") +
                                   cel::kLabelKeyPattern + "') && self[key].matches('" +
                                   cel::kLabelValuePattern + "'))",
                           .message = "found an invalid label key or value, expected a node's "
                                      "label and its value"}};
                    }},
          worker.node_selector);
  visitor(Field{.name = "tolerations",
                .description = "Taints that the workers tolerate, as in a pod.",
                .max_items = 64},
          worker.tolerations);
  visitor(Field{"affinity", "Scheduling constraints of the workers, as in a pod."},
          worker.affinity);
  visitor(Field{.name = "topologySpreadConstraints",
                .description = "How the workers are spread over the nodes, as in a pod.",
                .max_items = 16},
          worker.topology_spread_constraints);
  visitor(
      Field{.name = "env",
            .description = "Environment variables of the workers. With $(NAME) a value can refer "
                           "to earlier variables and to those that the operator sets. "
                           "Immutable.",
            .max_items = 128,
            .list_key = "name",
            .immutable = "variables cannot change after the job is created, because paths may "
                         "refer to them; create another job"},
      worker.env);
  visitor(Field{.name = "serviceAccountName",
                .description = "Service account of the worker pods.",
                .max_length = kNameLength,
                .rules = cel::optional_subdomain},
          worker.service_account_name);
  visitor(Field{.name = "priorityClassName",
                .description = "Priority class of the worker pods.",
                .max_length = kNameLength,
                .rules = cel::optional_subdomain},
          worker.priority_class_name);
  visitor(Field{.name = "schedulerName",
                .description = "Scheduler of the worker pods. Defaults to the operator's gang "
                               "scheduler, or else to the default scheduler.",
                .max_length = kNameLength},
          worker.scheduler_name);
  visitor.references(
      Field{.name = "imagePullSecrets",
            .description = "Secrets for pulling the image.",
            .max_items = 32},
      Field{.name = "name",
            .description = "Name of the secret.",
            .max_length = kNameLength,
            .required = true,
            .rules = [] { return std::vector<Rule>{cel::subdomain("the name of a secret")}; }},
      worker.image_pull_secrets);
  visitor(Field{.name = "runAsUser",
                .description = "User ID of the worker processes. Defaults to 65532.",
                .bounds = kIdBounds},
          worker.run_as_user);
  visitor(Field{.name = "fsGroup",
                .description = "Group ID that owns the files of the volumes, if the volume type "
                               "supports it.",
                .bounds = kIdBounds},
          worker.fs_group);
  static const std::string kDefaultGrace = std::to_string(kDefaultGraceSeconds);
  visitor(Field{.name = "terminationGracePeriodSeconds",
                .description = "Seconds between SIGTERM and SIGKILL when a worker is stopped. The "
                               "worker writes a checkpoint in this time.",
                .default_value = kDefaultGrace.c_str(),
                .bounds = {0, kMaxGraceSeconds}},
          worker.termination_grace_period_seconds);
  visitor(
      Field{.name = "podTemplate",
            .description =
                "Fields to add to the worker pod, as a strategic merge patch. They cannot remove "
                "or change what the operator sets, and cannot violate the restricted Pod "
                "Security standard.",
            .schema = pod_template_schema},
      worker.pod_template);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<Volume> auto& volume) {
  visitor.object_rules(volume_source_rules);
  visitor(Field{.name = "name",
                .description = "Name of the volume in trainer paths.",
                .max_length = kLabelLength,
                .required = true,
                .rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
                           .message_expression =
                               cel::found("up to 63 lower-case letters, digits and '-'",
                                          "self == \"\" ? \"nothing\" : self")},
                          cel::unreserved_volume_name()};
                    }},
          volume.name);
  visitor(Field{.name = "local",
                .description = "Directory that tilewright up uses in place of the volume, relative "
                               "to the manifest. A cluster ignores it.",
                .max_length = kWordLength,
                .rules =
                    [] {
                      return std::vector<Rule>{
                          {.rule = "self != ''", .message = "found nothing, expected a directory"}};
                    }},
          volume.local);
  visitor.volume_source(volume.source);
}

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<TrainJobSpec> auto& spec) {
  visitor(
      Field{.name = "nprocPerNode",
            .description =
                "Number of processes in each worker pod. auto or cpu: one process per NUMA node; "
                "fewer if the pod's CPU limit is below the cores of the nodes; one if a node has "
                "less than half as many allowed cores as another. per_device_train_batch_size is "
                "then the batch size of a pod, whose processes share it. Immutable.",
            .default_value = "1",
            .bounds = kProcessBounds,
            .immutable = "this field cannot change"},
      spec.nproc_per_node);
  visitor(Field{"elasticPolicy", "Limits for the number of workers and the number of restarts."},
          spec.elastic_policy);
  visitor(Field{"runPolicy",
                "Suspension, deadlines, clean-up and gang scheduling. Mutable except for "
                "schedulingPolicy."},
          spec.run_policy);
  visitor(
      Field{.name = "trainer",
            .description =
                "The training: task, files and the flags of Hugging Face's run_glue and run_qa by "
                "their names. Paths have the form VOLUME:relative/path, where VOLUME is a name in "
                "spec.volumes. They can refer to $(TILEWRIGHT_JOB_NAME) and to variables of "
                "worker.env that have a value. Immutable.",
            .required = true,
            .immutable = "a training cannot change after its job is created; create another job"},
      spec.trainer);
  visitor(Field{"worker",
                "The worker pods. Mutable except for env. A change of replicas takes effect "
                "immediately; other changes apply only to pods that are created later."},
          spec.worker);
  visitor(Field{.name = "volumes",
                .description = "Volumes that trainer paths refer to, each with one source. "
                               "Immutable.",
                .max_items = 64,
                .list_key = "name",
                .immutable = "volumes cannot change after the job is created; create another job"},
          spec.volumes);
}

}  // namespace tilewright::api
