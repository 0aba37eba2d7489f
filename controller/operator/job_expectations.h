// The leader's own writes for a job that the caches do not show yet. The data is an optimization: a
// new leader starts without it and reaches the same state.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/operator/pod_start_failure.h"
#include "controller/policy/observed.h"
#include "controller/policy/plan.h"

namespace tilewright::controller {

struct JobExpectations {
  std::string uid;  // of the job that the data below belongs to

  // The last written status, and the resourceVersions that this and earlier writes were based on.
  // While the cache shows one of these versions it is behind. Any other version is newer, because
  // each write has the previous version as precondition.
  struct Written {
    std::set<std::string> base_versions;
    std::string version;
    std::vector<std::uint8_t> status;  // as returned by the API server; CBOR to save memory
  };
  std::optional<Written> written;

  // A status write that may have been applied despite its error, and the events to post if it was.
  struct UnknownOutcome {
    std::string base_version;
    api::TrainJobStatus status;
    std::vector<policy::Event> events;
  };
  // Outcomes of consecutive reconciles with the same base version. At most one was applied.
  std::vector<UnknownOutcome> unknown_outcomes;

  struct Created {
    policy::Worker worker;
    MonotonicTime when;
  };
  std::map<std::string, Created> created;  // by UID of the pod

  struct Deleted {
    bool gone = false;  // forced deletion: the pod is gone; otherwise it is terminating
    MonotonicTime when;
  };
  std::map<std::string, Deleted> deleted;  // by UID of the pod

  struct PodEventsCheck {
    MonotonicTime when;
    std::optional<PodStartFailure> start_failure;
  };
  std::map<std::string, PodEventsCheck> pod_event_checks;  // by UID of pods that are slow to start

  std::set<policy::OwnedResource> owned_resources;  // known to exist
  // The round of Reconciler::invalidate_owned_resources() in which owned_resources was recorded.
  std::uint64_t invalidation_round = 0;
  std::set<policy::OwnedResource> removed_owned_resources;  // deleted by this leader
  std::optional<policy::Rejection> rejection;

  std::int64_t generation = 0;  // of the job from which owned_resources were made
  int services = 0;             // of a PyTorchJob: the number of Services among them; 0: not known
};

// Longer than a cache can be behind: ReflectorOptions allows a silent watch 90 s and the following
// list 60 s. An object that is not in the cache after this time was created and deleted again.
inline constexpr std::chrono::seconds kExpectationTimeout{180};

// Exceeds the number of consecutive reconciles that can fail before the cache shows the outcome of
// the first.
inline constexpr std::size_t kMaxUnknownOutcomes = 16;

void add_unknown_outcome(JobExpectations::UnknownOutcome unknown_outcome,
                         JobExpectations& expectations);

// Once the job has a newer version: clears the unknown outcomes and returns the events of the one
// that `job` shows as applied. Empty while the job has the base version.
std::vector<policy::Event> resolve_unknown_outcomes(const api::TrainJob& job,
                                                    JobExpectations& expectations);

// Drops the expectations that the cached pods now show, and those older than kExpectationTimeout.
void drop_observed(const std::vector<policy::Worker>& cached, MonotonicTime now,
                   JobExpectations& expectations);

// The cached pods with the later writes of this leader applied.
std::vector<policy::Worker> merge_pods(std::vector<policy::Worker> cached,
                                       const JobExpectations& expectations);

}  // namespace tilewright::controller
