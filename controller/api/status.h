// The status of a TrainJob: written by the controller and by `tilewright up`, read by kubectl.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/metadata.h"

namespace tilewright::api {

enum class Phase { kPending, kSuspended, kRunning, kRestarting, kSucceeded, kFailed };

// Condition types are stable: `kubectl wait --for=condition=Succeeded` relies on them.
namespace condition {
inline constexpr const char* kCreated = "Created";
inline constexpr const char* kRunning = "Running";
inline constexpr const char* kRestarting = "Restarting";
inline constexpr const char* kSuspended = "Suspended";
inline constexpr const char* kSucceeded = "Succeeded";
inline constexpr const char* kFailed = "Failed";
// True while the job should run and does not. The message says why and what happens next.
inline constexpr const char* kBlocked = "Blocked";
}  // namespace condition

enum class ConditionStatus { kTrue, kFalse, kUnknown };

struct Condition {
  std::string type;
  ConditionStatus status = ConditionStatus::kUnknown;
  std::string reason;   // CamelCase, stable
  std::string message;  // one sentence
  std::int64_t observed_generation = 0;
  Timestamp last_transition_time;

  bool operator==(const Condition&) const = default;
};

// Why a worker failed. restarts.h has the limit of restarts for each cause.
enum class FailureCause {
  kProgram,         // a non-zero exit code, or a signal such as SIGSEGV
  kInfrastructure,  // eviction, preemption, disruption, drain, lost node
  kOutOfMemory,     // killed by the kernel or the kubelet because of its memory use
};

struct ReplicaCounts {
  std::int64_t desired = 0;
  std::int64_t active = 0;  // pods that have not terminated
  std::int64_t ready = 0;   // running pods whose Ready condition is true
  std::int64_t succeeded = 0;
  std::int64_t failed = 0;

  bool operator==(const ReplicaCounts&) const = default;
};

// Never reset. No count becomes larger than kMax: a larger one in a stored status reads as kMax.
struct RestartCounts {
  static constexpr std::int64_t kMax = std::int64_t{1} << 30;
  std::int64_t program = 0;
  std::int64_t infrastructure = 0;
  std::int64_t out_of_memory = 0;
  std::int64_t total() const { return program + infrastructure + out_of_memory; }

  bool operator==(const RestartCounts&) const = default;
};

// An entry of the failure history.
struct FailureRecord {
  Timestamp time;
  std::int64_t index = 0;  // of the worker: 0 ... maxReplicas - 1
  std::int64_t rank = -1;  // in the last epoch; -1: none
  std::string pod;         // pod name; process name under `tilewright up`
  std::string pod_uid;
  std::string node;
  std::string init_container;  // that failed before the worker started; empty: none
  FailureCause cause = FailureCause::kProgram;
  std::optional<std::int64_t> exit_code;  // absent after a signal, or if unknown
  std::optional<std::int64_t> signal;
  std::string reason;                   // Error, OOMKilled, Evicted, NodeLost ...
  std::int64_t step = -1;               // last reported step; -1: none
  std::vector<std::string> last_lines;  // of the log

  bool operator==(const FailureRecord&) const = default;
};

// Determines when a worker that has failed restarts. Kept until it has worked for ten minutes and
// the job has made progress since its last OOM kill.
struct FailingWorker {
  std::int64_t index = 0;     // of the worker
  std::int64_t failures = 0;  // less than ten minutes apart
  Timestamp last_failure;
  std::optional<std::int64_t> out_of_memory_step;  // FailureRecord::step of its last OOM kill
  // The generation of the job with which a restart would fail again; 0: none.
  std::int64_t waits_generation = 0;

  bool operator==(const FailingWorker&) const = default;
};

inline constexpr std::int64_t kMaxReplicas = 1000;
inline constexpr std::int64_t kMaxPods = kMaxReplicas + 1;  // of a PyTorchJob, with its master
inline constexpr std::size_t kMaxOutputDirectory = 4096;
inline constexpr std::size_t kFailureHistoryLength = 10;
inline constexpr std::size_t kMaxExcludedNodes = 64;
inline constexpr std::size_t kFailureLogLines = 5;
inline constexpr std::size_t kFailureLogLineBytes = 300;

// A process that stays slower than the others.
struct SlowWorker {
  std::int64_t index = 0;    // of the worker
  std::int64_t process = 0;  // local rank
  double slowdown = 1;       // time per FLOP, divided by the median of the other processes
  std::int64_t shards = 0;   // virtual shards that it computes; 0: the training is not exact

  bool operator==(const SlowWorker&) const = default;
};

struct Progress {
  std::int64_t step = 0;  // completed optimizer steps
  std::int64_t total_steps = 0;
  double epoch = 0;
  std::optional<double> loss;
  std::optional<double> learning_rate;
  double examples_per_second = 0;
  double tokens_per_second = 0;
  std::optional<std::int64_t> eta_seconds;
  std::string last_checkpoint;            // directory name: checkpoint-500
  std::map<std::string, double> metrics;  // of the evaluation: accuracy, f1 ...
  std::vector<SlowWorker> slow_workers;   // by rank, at most training_report::kMaxSlowWorkers
  Timestamp updated;

  bool operator==(const Progress&) const = default;
};

struct TrainJobStatus {
  Phase phase = Phase::kPending;
  std::int64_t observed_generation = 0;
  Timestamp start_time;  // when the job first started, or was last resumed
  Timestamp completion_time;
  // When rank 0 reported that the output is complete. The workers terminate after that.
  Timestamp training_complete_time;
  ReplicaCounts replicas;
  std::string selector;  // of the worker pods, for the scale subresource
  RestartCounts restarts;
  std::vector<Condition> conditions;
  std::vector<FailureRecord> failures;         // oldest first, at most kFailureHistoryLength
  std::vector<FailingWorker> failing_workers;  // each index once
  // UIDs of pods that may still exist and whose end needs no further handling: their failure is
  // counted in `restarts`, or the operator is deleting them.
  std::vector<std::string> counted_pods;
  // Names of the workers of a PyTorchJob that have exited with 0, sorted; empty once a worker has
  // joined the rendezvous, because one exit with 0 is then the success of the job.
  std::vector<std::string> succeeded_workers;
  std::optional<Progress> progress;
  // Fixed when the job first starts, because the global batch of every step depends on them.
  std::int64_t nominal_workers = 0;  // processes: replicas x nprocPerNode; 0: not started
  std::int64_t virtual_shards = 0;   // 0: not started
  // Highest epoch of the rendezvous so far. A new coordinator continues above it.
  std::int64_t rendezvous_epoch = 0;
  // --output_dir of a PyTorchJob's native trainer, with $(date ...) expanded once for the job.
  // Empty: no worker has joined the rendezvous.
  std::string output_directory;
  std::string instruction_set;  // of the workers' kernels in the latest epoch; empty: no epoch yet
  // Nodes on which a worker of an exact job found that the CPU lacks instruction_set.
  std::vector<std::string> excluded_nodes;

  // nullptr if there is no condition of that type.
  const Condition* find_condition(std::string_view type) const;
  bool operator==(const TrainJobStatus&) const = default;
};

// The names of the values, in the order of the enum.
std::span<const std::string_view> enum_names(Phase);
std::span<const std::string_view> enum_names(ConditionStatus);
std::span<const std::string_view> enum_names(FailureCause);
std::string_view to_string(Phase phase);
std::string_view to_string(ConditionStatus status);
std::string_view to_string(FailureCause cause);

}  // namespace tilewright::api
