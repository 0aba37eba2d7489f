// All that reconcile may look at: the job, its workers, the rendezvous and the runtime, as plain
// values that a runtime has gathered. Both runtimes fill it in the same words.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/api/trainjob.h"

namespace tilewright::reconcile {

enum class WorkerPhase { kPending, kRunning, kSucceeded, kFailed };

// A pod, or a process in its place.
struct Worker {
  std::string name;  // worker_name(job, index)
  int index = 0;
  std::string uid;  // of this incarnation: a worker that is created again has another
  // Of the job it was made from, where the runtime lets a job change.
  std::optional<std::int64_t> generation;
  // Of the job's keys the one that it was given; empty: there is one only.
  std::string key_id;
  WorkerPhase phase = WorkerPhase::kPending;
  // It has ended and its pod has not: a container beside it runs on.
  bool pod_goes_on = false;
  bool ready = false;
  bool terminating = false;  // its deletion has begun, by whomever
  // Terminating: when the time that it was given to end is over, where the runtime tells.
  std::optional<WallTime> gone_by;
  // Of the container. What signal n ended has 128 + n, as shells and kubelets report it.
  std::optional<int> exit_code;
  // In Kubernetes' words. Of the end: OOMKilled, Evicted, Preempting, NodeLost, DisruptionTarget,
  // ...; of a wait: Unschedulable, ImagePullBackOff, CreateContainerConfigError, ...
  std::string reason;
  std::string message;  // the same in a sentence, where the runtime gives one
  std::string node;
  bool node_ready = true;  // false: the node does not report any more
  std::optional<WallTime> created, started, finished;
  std::string last_lines;  // of its log, once it has ended
};

// A worker as the rendezvous sees it.
struct Member {
  int rank = -1;  // of its first process; -1: it is in no epoch
  // Nothing was heard of it for longer than the time-out, and the coordinator has been listening
  // for at least as long: after a restart of the coordinator nobody is silent yet.
  bool silent = false;
  bool finished = false;  // it has reported that the training is complete
};

// A process that the rendezvous has lost: it died, left or fell silent.
struct Loss {
  int index = 0;  // of its worker
  int slot = 0;   // among the worker's processes
  int rank = -1;  // that it had last; -1: it was in no epoch
  WallTime when;
};

// What the workers last told the rendezvous.
struct Progress {
  std::uint64_t rendezvous_epoch = 0;  // 0: none is current
  std::uint64_t latest_epoch = 0;      // the highest so far
  int world = 0;                       // processes in it
  bool complete = false;               // rank 0 has reported that its output stands
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double epoch = 0;  // of the data: 1.5 is halfway through the second pass
  std::optional<double> loss;
  std::optional<double> learning_rate;
  double examples_per_second = 0;
  double tokens_per_second = 0;
  std::optional<std::int64_t> eta_seconds;
  std::int64_t last_checkpoint_step = -1;  // -1: none
  std::map<std::string, double> metrics;
  std::map<int, Member> members;  // by worker index
  std::vector<Loss> losses;       // the last ones, the oldest first
};

// Objects that stand beside the workers.
enum class Companion { kKeySecret, kHeadlessService, kNetworkPolicy, kPodGroup };

struct Runtime {
  // What the runtime makes of the companions; a process needs no Service.
  std::set<Companion> companions;
  // Whether a user may change the job while it runs (kubectl edit).
  bool job_can_change = true;
};

// What the runtime was refused when it last applied a plan (quota, admission), in a sentence.
struct Refusal {
  std::string reason;   // CamelCase: QuotaExceeded
  std::string message;  // without a full stop
};

// A node, as far as a worker's place hangs on it.
struct Node {
  std::string name;
  bool cordoned = false;
  std::map<std::string, std::string> labels;
  std::map<std::string, api::Quantity> allocatable;  // by resource: cpu, memory, ...
  bool operator==(const Node&) const = default;
};

struct Observed {
  api::TrainJob job;
  std::string key_id;  // of the key that the coordinator takes for proof; empty: there is one only
  std::vector<std::string> advice;         // what its owner would better have written, in sentences
  std::vector<Worker> workers;             // every one that carries the job's UID
  std::set<Companion> companions;          // that are known to exist
  std::set<Companion> removed_companions;  // that are known not to exist any more
  std::optional<Progress> progress;
  std::optional<Refusal> refusal;
  // Every node of the cluster; null: the runtime has none. Shared, for it is the same for all jobs.
  std::shared_ptr<const std::vector<Node>> nodes;
  Runtime runtime;
};

}  // namespace tilewright::reconcile
