// The TrainJob as plain values. trainjob_fields.h describes its fields, decode.h reads it,
// defaults.h fills in defaults, validate.h checks it, and encode.h writes it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/contract/rdzv_conf.h"
#include "controller/api/metadata.h"
#include "controller/api/quantity.h"
#include "controller/api/status.h"

namespace tilewright::api {

enum class RestartPolicy { kAlways, kOnFailure, kNever, kExitCode };
// For the descriptions of the fields.
inline constexpr std::string_view kRestartPolicyMeanings =
    "Always and OnFailure: after every failure. ExitCode: after exit codes of 128 and above; lower "
    "ones fail the job. Never: the first failure fails the job. Except with Never, a failure of "
    "the infrastructure always leads to a restart.";
enum class CleanPodPolicy { kNone, kRunning, kAll };
enum class ImagePullPolicy { kAlways, kIfNotPresent, kNever };

// The names of the values, in the order of the enum.
std::span<const std::string_view> enum_names(RestartPolicy);
std::span<const std::string_view> enum_names(CleanPodPolicy);
std::span<const std::string_view> enum_names(ImagePullPolicy);
std::string_view to_string(RestartPolicy policy);
std::string_view to_string(CleanPodPolicy policy);
std::string_view to_string(ImagePullPolicy policy);

// A member of type std::optional is empty if the manifest does not set the field. Members marked
// "defaulted" have a value after apply_defaults().

struct RdzvSetting {
  std::string key;  // as in common/contract/rdzv_conf.h
  std::string value;

  bool operator==(const RdzvSetting&) const = default;
};

struct ElasticPolicy {
  std::optional<std::string> rdzv_backend;  // c10d; defaulted
  std::vector<RdzvSetting> rdzv_conf;
  std::optional<std::int64_t> min_replicas;  // defaulted: worker.replicas
  std::optional<std::int64_t> max_replicas;  // defaulted: worker.replicas
  std::optional<std::int64_t> max_restarts;  // defaulted: backoffLimit, else 3

  bool operator==(const ElasticPolicy&) const = default;
};

struct SchedulingPolicy {
  std::optional<std::int64_t> min_available;
  std::optional<std::string> queue;
  std::optional<std::string> priority_class;
  std::optional<std::int64_t> schedule_timeout_seconds;

  bool operator==(const SchedulingPolicy&) const = default;
};

struct RunPolicy {
  std::optional<bool> suspend;  // defaulted: false
  std::optional<std::int64_t> ttl_seconds_after_finished;
  std::optional<std::int64_t> active_deadline_seconds;
  std::optional<std::int64_t> backoff_limit;       // same as maxRestarts
  std::optional<CleanPodPolicy> clean_pod_policy;  // defaulted: Running
  std::optional<SchedulingPolicy> scheduling_policy;

  bool operator==(const RunPolicy&) const = default;
};

// The flags of trainer.args are in these members too: the decoder puts each where its field goes.
struct Trainer {
  std::string task;    // empty: dataset_name says it, or the files are the user's own
  std::string model;   // VOLUME:relative/path, or a name on the hub
  std::string data;    // VOLUME:relative/path; empty: the task's data set on the hub
  std::string output;  // VOLUME:relative/path
  std::string cache;   // VOLUME:relative/path for downloads; empty: none
  // Other training flags by name (common/contract/training_flags.h), values in normal form.
  std::map<std::string, std::string> flags;

  bool operator==(const Trainer&) const = default;
};

struct EnvVar {
  std::string name;
  std::string value;
  nlohmann::json value_from;  // null, or the object of the manifest; for pods only

  bool operator==(const EnvVar&) const = default;
};

struct Worker {
  std::optional<std::int64_t> replicas;  // defaulted: 1
  std::string image;                     // defaulted
  std::optional<ImagePullPolicy> image_pull_policy;
  std::optional<RestartPolicy> restart_policy;  // defaulted: OnFailure
  std::map<std::string, Quantity> resources;    // requests and limits, which are equal
  std::optional<Quantity> shared_memory;        // size of /dev/shm
  std::map<std::string, std::string> node_selector;
  nlohmann::json tolerations;                  // null, or the array of the manifest
  nlohmann::json affinity;                     // null, or the object of the manifest
  nlohmann::json topology_spread_constraints;  // null, or the array of the manifest
  std::vector<EnvVar> env;
  std::string service_account_name;
  std::string priority_class_name;
  std::string scheduler_name;
  std::vector<std::string> image_pull_secrets;
  std::optional<std::int64_t> run_as_user;
  std::optional<std::int64_t> fs_group;
  std::optional<std::int64_t> termination_grace_period_seconds;  // defaulted: 30
  nlohmann::json pod_template;  // null, or an overlay {metadata, spec}

  bool operator==(const Worker&) const = default;
};

struct Volume {
  std::string name;
  // The directory that `tilewright up` uses, relative to the manifest.
  std::optional<std::string> local;
  // Null, or an object whose only member is the volume source in Kubernetes' form:
  // {"persistentVolumeClaim": {"claimName": ...}}.
  nlohmann::json source;

  bool operator==(const Volume&) const = default;
};
// Whether the volume is a claim with readOnly: true.
bool is_read_only(const Volume& volume);

// The number of processes in each pod.
struct ProcessCount {
  ProcessCount(std::int64_t count = 1) : number(count) {}  // NOLINT: an integer is a ProcessCount

  // One for each NUMA node of the host, which only the pod knows: auto or cpu. `number` is then 1,
  // so that the global batch is the same on every host.
  bool automatic = false;
  std::int64_t number = 1;

  bool operator==(const ProcessCount&) const = default;
};

struct TrainJobSpec {
  std::optional<ProcessCount> nproc_per_node;  // defaulted: 1
  ElasticPolicy elastic_policy;
  RunPolicy run_policy;
  Trainer trainer;
  Worker worker;
  std::vector<Volume> volumes;

  bool operator==(const TrainJobSpec&) const = default;
};

struct TrainJob {
  ObjectMeta metadata;
  TrainJobSpec spec;
  TrainJobStatus status;

  bool operator==(const TrainJob&) const = default;
};

inline constexpr std::int64_t kDefaultMaxRestarts = 3;
inline constexpr std::int64_t kDefaultGraceSeconds = 30;
inline constexpr std::int64_t kMaxProcessesPerNode = 256;
// Of nprocPerNode auto: more NUMA nodes than hosts for training have.
inline constexpr std::int64_t kMaxAutomaticProcesses = 16;
// For how many of them a job has virtual shards: two sockets of four NUMA nodes.
inline constexpr std::int64_t kAutomaticProcessesWithShards = 8;
inline constexpr std::int64_t kMaxSeconds = 10LL * 366 * 24 * 3600;  // ten years, for each limit

// The next five functions need a job with defaults applied.
// Number of processes that determines the global batch size. It is fixed in the status when the job
// first starts.
std::int64_t nominal_workers(const TrainJob& job);
// The port of the last process of a pod, which may not exist.
std::int64_t last_transport_port(const TrainJob& job);
// Maximum number of processes; with nprocPerNode auto, of those that count for the global batch.
std::int64_t max_workers(const TrainJob& job);
// Examples per optimizer step.
std::int64_t global_batch(const TrainJob& job);
// Number of virtual shards: the one in the status if the job has started, else the one in the
// manifest, else choose_virtual_shards().
std::int64_t virtual_shards(const TrainJob& job);

// The task that the job trains: spec.trainer.task, or that of dataset_name. Empty: a classification
// of the user's own files.
std::string task_name(const TrainJob& job);

// For messages: the task, or "own files".
std::string describe_task(const TrainJob& job);

// Whether trainer.train_file, validation_file or test_file is set.
bool has_own_files(const TrainJob& job);

// The models and data sets that the workers find by their names on the hub: "model
// distilbert-base-uncased", "data set squad". The job must be valid.
std::vector<std::string> names_on_hub(const TrainJob& job);

// Whether the weights must be bitwise equal for any number of workers and after any failure.
bool is_exact(const TrainJob& job);

// spec.elasticPolicy.rdzvConf without settings that are not valid, which validate() reports.
RdzvConf rdzv_conf(const TrainJob& job);

// mrpc-worker-0
std::string worker_name(const TrainJob& job, std::int64_t index);

// The value of a training flag in normal form: the value in spec.trainer, else the default.
std::string flag_value(const TrainJob& job, std::string_view flag);

}  // namespace tilewright::api
