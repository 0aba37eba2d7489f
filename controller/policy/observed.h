// The input of reconcile(): the job, its workers, the rendezvous and the runtime as plain values.
// Both runtimes (pods and processes) fill in the same types.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rendezvous/types.h"
#include "controller/api/trainjob.h"

namespace tilewright::policy {

enum class WorkerPhase { kPending, kRunning, kSucceeded, kFailed };

// Why a worker that exists has not started.
enum class StartProblemCause {
  kUnschedulable,       // no node can run it at the moment
  kSchedulingGated,     // its pod has scheduling gates
  kClaimNotFound,       // a PersistentVolumeClaim does not exist
  kClaimUsedByPod,      // another pod uses a ReadWriteOncePod PersistentVolumeClaim
  kVolumeOnOtherNode,   // a volume that attaches to one node is attached to another
  kVolumeNotAttached,   // a volume cannot be attached for another reason
  kImageNotAvailable,   // the image cannot be pulled
  kContainerNotStarted  // any other error of the kubelet
};

struct StartProblem {
  StartProblemCause cause = StartProblemCause::kContainerNotStarted;
  // kClaimNotFound: the missing claim. kVolumeOnOtherNode: the job's claims; one of them is the
  // cause.
  std::vector<std::string> claims;
  std::string volume;             // kVolumeOnOtherNode
  std::vector<std::string> pods;  // kVolumeOnOtherNode: the pods that use it, if they are known
};

enum class NodeState {
  kReady,
  kNotReady,    // as its kubelet reports
  kUnreachable  // its kubelet has stopped reporting, or there is no such node
};

// A pod, or a process in its place.
struct Worker {
  std::string name;  // worker_name(observed, index)
  int index = 0;
  std::string uid;  // a recreated worker has a new UID
  // metadata.generation of the job when the worker was created; only if the job can change.
  std::optional<std::int64_t> generation;
  std::string key_id;  // id of its job key; empty: the job has only one key
  WorkerPhase phase = WorkerPhase::kPending;
  // The worker's container has ended, but another container keeps the pod running.
  bool pod_still_running = false;
  bool ready = false;
  bool terminating = false;  // its deletion has begun
  // If terminating: the end of the grace period, if the runtime reports it.
  std::optional<WallTime> deletion_deadline;
  // Exit code of the container; 128 + n after signal n, as shells and kubelets report it.
  std::optional<int> exit_code;
  // The init container that failed and to which exit_code, reason and last_lines belong; empty:
  // none.
  std::string init_container;
  // Why it ended, in addition to the exit code and `terminating`. While it runs: kInfrastructure if
  // the cluster is about to stop it.
  api::FailureCause failure_cause = api::FailureCause::kProgram;
  std::optional<StartProblem> start_problem;  // only if Pending
  // The runtime's CamelCase reason and sentence for the worker's state. They are shown to users;
  // policies do not interpret them.
  std::string reason;
  std::string message;
  std::string node;
  NodeState node_state = NodeState::kReady;
  // `scheduled`: when the pod got its node.
  std::optional<WallTime> created, scheduled, started, finished;
  std::string last_lines;  // last lines of its log, once it has ended
};

// A worker as the rendezvous sees it.
struct Member {
  int rank = -1;  // rank of its first process; -1: it is in no epoch
  // No heartbeat for longer than the timeout, while the coordinator has been listening for at least
  // that long. Right after a restart of the coordinator no worker is silent.
  bool silent = false;
  bool finished = false;   // it has reported that the training is complete
  bool lacks_isa = false;  // it waits, because it cannot use the job's instruction set
};

// A process that the rendezvous has lost: it died, left or stopped sending heartbeats.
struct LostProcess {
  int index = 0;       // index of its worker
  int local_rank = 0;  // among the worker's processes
  int rank = -1;       // its last rank; -1: it was in no epoch
  WallTime when;
};

// The state of the job in the rendezvous coordinator.
struct RendezvousView {
  rendezvous::Epoch epoch = 0;         // 0: no epoch is current
  rendezvous::Epoch latest_epoch = 0;  // the highest so far
  int world = 0;                       // processes in the current epoch
  std::string isa;                     // of the latest epoch; empty: no epoch yet
  bool complete = false;               // rank 0 has reported that the output is written
  // The last report; total_steps is 0 before the first one. `metrics` holds evaluation results
  // only; the figures below are removed from it.
  rendezvous::Progress progress;
  std::optional<std::int64_t> eta_seconds;  // until the last step
  double gflops_per_second = 0;             // of all workers; 0: unknown
  double peak_gflops = 0;                   // of all workers' CPUs; 0: unknown
  std::map<int, Member> members;            // by worker index
  std::vector<LostProcess> lost_processes;  // the most recent ones, oldest first
};

// Objects that belong to the job, apart from its workers.
enum class OwnedResource {
  kKeySecret,
  kHeadlessService,  // of a PyTorchJob: one Service a worker
  kNetworkPolicy,
  kPodGroup,
  kAutoscaler
};

struct Runtime {
  // The owned resources that this runtime creates; processes need none.
  std::set<OwnedResource> owned_resources;
  // Whether a user may change the job while it runs (kubectl edit).
  bool job_can_change = true;
};

enum class RejectionCause {
  kQuotaExceeded,
  kForbidden,
  kNameTaken,
  kCrdMissing,  // the cluster has no CRD of an object's kind
  kInvalid,
  kInternalError  // a bug of the operator
};

// The API server rejected a request of the last plan, or the operator failed to carry it out.
struct Rejection {
  RejectionCause cause = RejectionCause::kInvalid;
  std::string message;  // of the API server or of the exception, without a full stop
};

// The properties of a node that decide whether it can run a worker.
struct Node {
  std::string name;
  bool cordoned = false;
  std::map<std::string, std::string> labels;
  std::map<std::string, api::Quantity> allocatable;  // by resource: cpu, memory, ...
  bool operator==(const Node&) const = default;
};

// The fields of the manifest that messages tell the user to change.
struct FieldNames {
  const char* resources = "spec.worker.resources";
  const char* memory = "spec.worker.resources.memory";
  const char* node_selector = "spec.worker.nodeSelector";
  const char* affinity = "spec.worker.affinity";
};

// What differs between the kinds of jobs. The defaults are those of a TrainJob.
struct JobTraits {
  // Worker 0 is the job's master, named JOB-master-0; worker i is then JOB-worker-(i - 1). The
  // master has a restart policy of its own, and its success is the job's.
  bool has_master = false;
  std::optional<api::RestartPolicy> master_restart_policy;  // nullopt: that of the workers
  // False: the workers may run any program, until they join the rendezvous.
  bool runs_tilewright = true;
  // The trainer's --output_dir, with dates expanded, if the workers run Tilewright; else unknown.
  std::string output_directory;
  // Owned resources to remove when the job ends or is suspended, whatever cleanPodPolicy says.
  std::set<OwnedResource> removed_when_inactive;
  // Each worker has a Service of its own. The clean-up deletes it with the worker, a suspension
  // deletes all.
  bool service_per_worker = false;
  // activeDeadlineSeconds and the limit of restarts also delete running workers if cleanPodPolicy
  // is None.
  bool limits_delete_running = false;
  FieldNames fields;
};

struct Observed {
  api::TrainJob job;
  JobTraits traits;
  std::string key_id;  // id of the job key that the coordinator accepts; empty: there is only one
  std::vector<std::string> warnings;                // of the job's validation
  std::vector<Worker> workers;                      // all with the job's UID
  std::set<OwnedResource> owned_resources;          // known to exist
  std::set<OwnedResource> removed_owned_resources;  // known not to exist any more
  std::optional<RendezvousView> rendezvous;
  std::optional<Rejection> rejection;
  // Every node of the cluster, shared by all jobs; null: the runtime has no nodes.
  std::shared_ptr<const std::vector<Node>> nodes;
  Runtime runtime;
};

// mrpc-worker-0, or mrpc-master-0.
std::string worker_name(const api::TrainJob& job, const JobTraits& traits, int index);

// Whether the workers run Tilewright's trainer, whose exit codes and membership have a meaning.
bool runs_tilewright(const Observed& observed);

}  // namespace tilewright::policy
