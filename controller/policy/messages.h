// Every reason and sentence of the job's conditions, events and failures, made from typed causes.
#pragma once

#include <string>

#include "controller/api/status.h"
#include "controller/policy/blocked.h"
#include "controller/policy/job_state.h"

namespace tilewright::policy {

// Text of a condition or an event: a CamelCase reason and a sentence without a full stop.
struct Message {
  std::string reason;
  std::string text;
};

Message message_of(const api::TrainJob& job, const BlockedReason& blocked,
                   const JobTraits& traits = {});
Message message_of(const JobState& state, const JobEnd& end);

// "worker 1 (mrpc-worker-1 on node-a) exited with code 3 (the last line of its log)"
std::string describe_failure(const api::TrainJob& job, const api::FailureRecord& record);

// "worker 1 takes 4.0 times as long as the others; it computes 1 virtual shard"
std::string describe_slow_worker(const api::SlowWorker& worker);

// Reasons of the conditions Blocked and Failed. The restart policy reads them from Blocked.
inline constexpr const char* kOutOfMemoryReason = "OutOfMemory";
inline constexpr const char* kCheckpointMissingReason = "CheckpointMissing";
// Reasons of the condition Failed. The clean-up reads them.
inline constexpr const char* kDeadlineExceededReason = "DeadlineExceeded";
inline constexpr const char* kBackoffLimitExceededReason = "BackoffLimitExceeded";

struct FixedMessage {
  const char* reason;
  const char* text;
};

namespace messages {
inline constexpr FixedMessage kAccepted{"JobAccepted", "job accepted"};
inline constexpr FixedMessage kSuspended{"Suspended", "spec.runPolicy.suspend is true"};
inline constexpr FixedMessage kResumed{"Resumed", "spec.runPolicy.suspend is false"};
inline constexpr FixedMessage kRunning{"WorkersRunning", "the workers are running"};
inline constexpr FixedMessage kNotRunning{"WaitingForWorkers", "not all workers are running"};
inline constexpr FixedMessage kNotRunningSuspended{"Suspended", "the job is suspended"};
// Messages whose reason is that of the job's phase or end.
inline constexpr const char* kFinished = "the job has finished";
inline constexpr const char* kNotRestarting = "no worker is restarting";
inline constexpr const char* kNotBlocked = "nothing blocks the job";
inline constexpr const char* kResumedEvent = "the job resumes from its last checkpoint";
}  // namespace messages

// Reasons in status.failures that this program sets; the others come from the runtime.
namespace failure_reason {
inline constexpr const char* kNodeLost = "NodeLost";
inline constexpr const char* kDeleted = "Deleted";    // not by a plan
inline constexpr const char* kVanished = "Vanished";  // deleted while no leader was watching
inline constexpr const char* kKeyReplaced = "KeyReplaced";
inline constexpr const char* kStoreLost = "StoreLost";  // torchrun's, with the operator's leader
inline constexpr const char* kPeerLost = "PeerLost";
inline constexpr const char* kCheckpointMissing = kCheckpointMissingReason;
inline constexpr const char* kDiverged = "TrainingDiverged";
inline constexpr const char* kInvalidFlags = "InvalidFlags";
inline constexpr const char* kOutputRefused = "OutputRefused";
inline constexpr const char* kUnknown = "ContainerStatusUnknown";
inline constexpr const char* kError = "Error";
}  // namespace failure_reason

// Reasons of events. Events of the conditions Blocked and Failed have the condition's reason.
namespace event_reason {
inline constexpr const char* kCreated = "Created";
inline constexpr const char* kValidationWarning = "ValidationWarning";
inline constexpr const char* kInternalError = "InternalError";  // also of the condition Blocked
inline constexpr const char* kWorkerFailed = "WorkerFailed";    // also of the condition Restarting
inline constexpr const char* kWorkerSlow = "WorkerSlow";
inline constexpr const char* kSuspended = "Suspended";
inline constexpr const char* kResumed = "Resumed";
inline constexpr const char* kRunning = "Running";
inline constexpr const char* kSucceeded = "Succeeded";
}  // namespace event_reason

}  // namespace tilewright::policy
