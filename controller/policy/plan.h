// The output of reconcile(): what a runtime does next for one job.
//
// A runtime applies a plan in this order: the status; deletions; the membership; creation of owned
// resources and workers; removal of owned resources; events. If the status cannot be written, it
// does nothing else: a worker's failure must be in the status before the worker is deleted, and the
// frozen sizes before the first worker exists. Any step may fail: the next reconcile starts from
// the state that results.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/api/status.h"
#include "controller/policy/observed.h"

namespace tilewright::policy {

struct WorkerCreation {
  std::string name;  // deterministic, so that an index cannot be created twice
  int index = 0;
  bool operator==(const WorkerCreation&) const = default;
};

enum class DeletionReason {
  kFailed,
  kSpecChanged,
  kInstructionSetMissing,
  kScaledDown,
  kJobFinished,
  kJobSuspended
};
const char* to_string(DeletionReason reason);  // for the log

struct WorkerDeletion {
  std::string name;
  int index = 0;
  std::string uid;     // precondition: a newer worker of that name stays
  bool force = false;  // without waiting for the node to confirm it
  DeletionReason reason = DeletionReason::kFailed;
  // The worker's own Service too, and first: as long as the worker exists, the next reconcile
  // repeats a deletion that has failed.
  bool with_service = false;
  bool operator==(const WorkerDeletion&) const = default;
};

// The request to a gang scheduler.
struct Gang {
  std::int64_t min_member = 0;
  std::string queue;
  std::string priority_class;
  std::optional<std::int64_t> schedule_timeout_seconds;
  bool operator==(const Gang&) const = default;
};

// The nodes that new workers of an exact job avoid, because they lack its instruction set.
struct NodeConstraint {
  std::vector<std::string> excluded_nodes;
  // A label of node feature discovery that a node must have with the value "true"; empty: none.
  std::string required_label;
  bool operator==(const NodeConstraint&) const = default;
};

// Settings for the coordinator of the rendezvous, in processes.
struct Membership {
  int min_world = 1;
  int max_world = 1;
  int expected = 1;  // an epoch forms at once when this many have joined
  // How long an epoch waits for the expected number before it forms with fewer.
  std::chrono::seconds timeout{0};
  bool operator==(const Membership&) const = default;
};

struct Event {
  bool warning = false;
  std::string reason;
  std::string message;
  bool operator==(const Event&) const = default;
};

struct Plan {
  std::optional<api::TrainJobStatus> status;  // absent: the observed one is up to date
  std::vector<WorkerDeletion> deletions;
  std::vector<OwnedResource> ensure;
  std::vector<OwnedResource> remove;
  std::vector<WorkerCreation> creations;  // by index
  NodeConstraint node_constraint;         // of the created workers
  std::optional<Gang> gang;               // with OwnedResource::kPodGroup
  std::optional<Membership> membership;   // absent: no worker may join
  std::vector<Event> events;
  bool finished = false;    // the job's phase is final
  bool delete_job = false;  // ttlSecondsAfterFinished has passed
  std::optional<WallTime::duration> requeue_after;

  bool operator==(const Plan&) const = default;
};

}  // namespace tilewright::policy
