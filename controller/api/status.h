// The status of a TrainJob: written by the controller and by `tilewright up`, read by kubectl.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
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
// True while the job does not run though it should: its message says why, and what happens next.
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

// Why a worker went away; each has its own budget or none.
enum class FailureCause {
  kProgram,         // its own exit code, or a signal of its own making
  kInfrastructure,  // eviction, preemption, disruption, drain, lost node
  kOutOfMemory,     // killed by the kernel or kubelet for its memory
};

struct ReplicaCounts {
  std::int64_t desired = 0;
  std::int64_t active = 0;  // pods that exist and have not ended
  std::int64_t ready = 0;   // of these, running and joined
  std::int64_t succeeded = 0;
  std::int64_t failed = 0;

  bool operator==(const ReplicaCounts&) const = default;
};

// Never reset.
struct RestartCounts {
  std::int64_t program = 0;
  std::int64_t infrastructure = 0;
  std::int64_t out_of_memory = 0;
  std::int64_t total() const { return program + infrastructure + out_of_memory; }

  bool operator==(const RestartCounts&) const = default;
};

// A line of the ledger of failures.
struct FailureRecord {
  Timestamp time;
  std::int64_t index = 0;  // the worker's, 0 ... maxReplicas - 1
  std::int64_t rank = -1;  // in its epoch; -1: never had one
  std::string pod;         // pod or, under `up`, process name
  std::string pod_uid;
  std::string node;
  FailureCause cause = FailureCause::kProgram;
  std::optional<std::int64_t> exit_code;  // absent when a signal ended it, or nobody knows
  std::optional<std::int64_t> signal;
  std::string reason;                   // Error, OOMKilled, Evicted, NodeLost ...
  std::int64_t step = -1;               // the last one it reported; -1: none
  std::vector<std::string> last_lines;  // of its log

  bool operator==(const FailureRecord&) const = default;
};
inline constexpr std::size_t kLedgerLength = 10;
inline constexpr std::size_t kLedgerLines = 5;
inline constexpr std::size_t kLedgerLineBytes = 300;

struct Progress {
  std::int64_t step = 0;  // optimizer steps done
  std::int64_t total_steps = 0;
  double epoch = 0;
  std::optional<double> loss;
  std::optional<double> learning_rate;
  double examples_per_second = 0;
  double tokens_per_second = 0;
  std::optional<std::int64_t> eta_seconds;
  std::string last_checkpoint;            // folder name: checkpoint-500
  std::map<std::string, double> metrics;  // of the evaluation: accuracy, f1 ...
  Timestamp updated;

  bool operator==(const Progress&) const = default;
};

struct TrainJobStatus {
  Phase phase = Phase::kPending;
  std::int64_t observed_generation = 0;
  Timestamp start_time;  // first pods asked for since the job was last resumed
  Timestamp completion_time;
  // The rendezvous was told that the output stands; what is left to come are the workers' ends.
  Timestamp training_complete_time;
  ReplicaCounts replicas;
  std::string selector;  // of the worker pods, for the scale subresource
  RestartCounts restarts;
  std::vector<Condition> conditions;
  std::vector<FailureRecord> failures;  // oldest first, at most kLedgerLength
  // Pods (by UID) whose end is in `restarts` and that may still be in the cluster.
  std::vector<std::string> counted_pods;
  std::optional<Progress> progress;
  // Frozen at the job's first start: the global batch, and so every later step, hangs on them.
  std::int64_t nominal_workers = 0;  // processes: replicas x nprocPerNode; 0: not started
  std::int64_t virtual_shards = 0;   // 0: not started
  // The highest epoch of the rendezvous so far: no later coordinator gives it out again.
  std::int64_t rendezvous_epoch = 0;

  // nullptr when there is none of that type.
  const Condition* find_condition(std::string_view type) const;
  bool operator==(const TrainJobStatus&) const = default;
};

std::string_view to_string(Phase phase);
std::string_view to_string(ConditionStatus status);
std::string_view to_string(FailureCause cause);

}  // namespace tilewright::api
