// The TrainJob: what a manifest says, as plain values. decode.h makes one, defaults.h fills what
// was left out, validate.h judges it, encode.h writes it back.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/api/metadata.h"
#include "controller/api/quantity.h"
#include "controller/api/status.h"

namespace tilewright::api {

enum class RestartPolicy { kAlways, kOnFailure, kNever, kExitCode };
enum class CleanPodPolicy { kNone, kRunning, kAll };
enum class ImagePullPolicy { kAlways, kIfNotPresent, kNever };

std::string_view to_string(RestartPolicy policy);
std::string_view to_string(CleanPodPolicy policy);
std::string_view to_string(ImagePullPolicy policy);

// An optional member is one that the manifest may leave out; those marked "defaulted" hold a value
// after apply_defaults().

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
  std::optional<std::int64_t> max_restarts;  // defaulted: backoffLimit, else kDefaultMaxRestarts

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
  std::optional<std::int64_t> backoff_limit;       // another name of maxRestarts
  std::optional<CleanPodPolicy> clean_pod_policy;  // defaulted: Running
  std::optional<SchedulingPolicy> scheduling_policy;

  bool operator==(const RunPolicy&) const = default;
};

struct Trainer {
  std::string task;
  std::string model;  // these three are VOLUME:relative/path
  std::string data;
  std::string output;
  // Training flags by name (common/contract/training_flags.h), values in normal form.
  std::map<std::string, std::string> flags;
  std::vector<std::string> args;  // handed to the worker after the flags, as they are

  bool operator==(const Trainer&) const = default;
};

struct EnvVar {
  std::string name;
  std::string value;
  nlohmann::json value_from;  // null, or the object as it came: pods only

  bool operator==(const EnvVar&) const = default;
};

struct Worker {
  std::optional<std::int64_t> replicas;  // defaulted: 1
  std::string image;                     // defaulted
  std::optional<ImagePullPolicy> image_pull_policy;
  std::optional<RestartPolicy> restart_policy;  // defaulted: OnFailure
  std::map<std::string, Quantity> resources;    // requests and limits alike: cpu, memory, others
  std::optional<Quantity> shared_memory;        // size of /dev/shm
  std::map<std::string, std::string> node_selector;
  nlohmann::json tolerations;                  // null, or the array as it came
  nlohmann::json affinity;                     // null, or the object as it came
  nlohmann::json topology_spread_constraints;  // null, or the array as it came
  std::vector<EnvVar> env;
  std::string service_account_name;
  std::string priority_class_name;
  std::string scheduler_name;
  std::vector<std::string> image_pull_secrets;
  std::optional<std::int64_t> run_as_user;
  std::optional<std::int64_t> fs_group;
  std::optional<std::int64_t> termination_grace_period_seconds;  // defaulted: 30
  nlohmann::json pod_template;  // null, or an overlay {metadata, spec} for the worker's pods

  bool operator==(const Worker&) const = default;
};

struct Volume {
  std::string name;
  std::optional<std::string> local;  // the folder `tilewright up` uses, relative to the manifest
  // Null, or an object with the volume source as its one member, as Kubernetes has it:
  // {"persistentVolumeClaim": {"claimName": ...}}.
  nlohmann::json source;

  bool operator==(const Volume&) const = default;
};
// Whether it is a claim that is to be mounted so.
bool is_read_only(const Volume& volume);

struct TrainJobSpec {
  std::optional<std::int64_t> nproc_per_node;  // processes a pod; defaulted: 1
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
inline constexpr std::int64_t kMaxReplicas = 1000;
inline constexpr std::int64_t kMaxProcessesPerNode = 256;
inline constexpr std::int64_t kMaxSeconds = 10LL * 366 * 24 * 3600;  // ten years: of any limit

// These four speak of a job with defaults applied.
// Processes the global batch is reckoned for: the frozen number once the job has started.
std::int64_t nominal_workers(const TrainJob& job);
// The most processes the job may ever have.
std::int64_t max_workers(const TrainJob& job);
// Examples in one optimizer step.
std::int64_t global_batch(const TrainJob& job);
// The number of virtual shards: frozen, or the manifest's, or chosen.
std::int64_t virtual_shards(const TrainJob& job);

// Whether all traffic of the workers goes under TLS.
bool uses_tls(const TrainJob& job);

// mrpc-worker-0
std::string worker_name(const TrainJob& job, std::int64_t index);

// The value of a training flag, in normal form: from the trainer block, else the table's default.
std::string flag_value(const TrainJob& job, std::string_view flag);

}  // namespace tilewright::api
