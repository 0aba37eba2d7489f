// Why a job does not run: the cause of the condition Blocked.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "controller/policy/job_state.h"
#include "controller/policy/restarts.h"

namespace tilewright::policy {

// The causes, each with the data of its message. The data must stay equal while the cause persists,
// because each change causes a status write. Pointers refer to elements of Observed.
namespace blocked {
struct InvalidSpec {
  std::string error;  // a sentence without a full stop
};
// A worker was OOM-killed twice without progress and waits for a change of the job.
struct OutOfMemory {
  int index = 0;
  std::optional<api::FailureRecord> failure;
};
// A worker did not find the job's last checkpoint in the output directory and waits for a change of
// the job: starting again at an earlier step would lose the progress since.
struct CheckpointMissing {
  int index = 0;
  std::optional<api::FailureRecord> failure;
};
struct Rejected {
  Rejection rejection;
};
struct NoMatchingNode {
  std::size_t nodes = 0;
};
struct NodesCordoned {};
struct LargerThanAnyNode {
  std::size_t candidates = 0;  // nodes that match the node selector and are not cordoned
  std::size_t nodes = 0;
  std::map<std::string, api::Quantity> largest;  // the maximum of each requested resource
};
// The worker is being deleted, and its node cannot confirm the deletion.
struct NodeNotReady {
  const Worker* worker = nullptr;
};
struct DeletionStuck {
  const Worker* worker = nullptr;
};
// The worker has a start_problem.
struct NotStarting {
  const Worker* worker = nullptr;
  const Worker* holder = nullptr;  // worker of this job that uses the volume, or null
};
struct BackOff {
  api::FailureRecord failure;
  WallTime until;
};
// The worker runs on a CPU that lacks the instruction set of an exact job.
struct LacksInstructionSet {
  const Worker* worker = nullptr;
  std::string isa;
};
// All workers run, but no epoch of the rendezvous has formed.
struct NotJoined {};
}  // namespace blocked

using BlockedReason =
    std::variant<blocked::InvalidSpec, blocked::OutOfMemory, blocked::CheckpointMissing,
                 blocked::Rejected, blocked::NoMatchingNode, blocked::NodesCordoned,
                 blocked::LargerThanAnyNode, blocked::NodeNotReady, blocked::DeletionStuck,
                 blocked::NotStarting, blocked::BackOff, blocked::LacksInstructionSet,
                 blocked::NotJoined>;

// Returns std::nullopt if the job runs or its workers are starting.
std::optional<BlockedReason> find_blocked_reason(const JobState& state, const Restarts& restarts,
                                                 const api::TrainJobStatus& status, Timer& timer);

}  // namespace tilewright::policy
