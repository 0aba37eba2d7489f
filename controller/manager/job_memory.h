// What the leader remembers of a job between two looks: its own writes that the caches do not show
// yet. None of it is needed: a new leader begins with nothing and ends in the same state.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "controller/manager/pod_trouble.h"
#include "controller/reconcile/observed.h"
#include "controller/reconcile/plan.h"

namespace tilewright::manager {

struct JobMemory {
  std::string uid;  // of the job's incarnation that all below belongs to

  // The status as written last, and the versions that it and earlier writes of ours were made upon:
  // for as long as the cache shows one of these, it lags behind. (Every other one is later, for
  // each write had the version before it for its precondition.)
  struct Written {
    std::set<std::string> upon_versions;
    std::string version;
    std::vector<std::uint8_t> status;  // as the API server answered it, in CBOR: for thousands
  };
  std::optional<Written> written;

  // A status whose writing failed with an answer that leaves open whether it was done, and what
  // people are to be told if it was.
  struct Doubtful {
    std::string upon_version;
    api::TrainJobStatus status;
    std::vector<reconcile::Event> events;
  };
  std::vector<Doubtful> doubtful;  // of looks in a row, all upon one version: at most one was done

  struct Created {
    reconcile::Worker worker;
    MonotonicTime when;
  };
  std::map<std::string, Created> created;  // by UID of the pod

  struct Deleted {
    bool gone = false;  // with force: not there any more; else it is terminating
    MonotonicTime when;
  };
  std::map<std::string, Deleted> deleted;  // by UID of the pod

  struct Asked {
    MonotonicTime when;
    std::optional<PodTrouble> trouble;
  };
  std::map<std::string, Asked> asked;  // by UID of pods that take long to start

  std::set<reconcile::Companion> companions;  // that are known to exist
  std::uint64_t looked_up = 0;                // in which round of Reconciler::distrust_companions()
  std::set<reconcile::Companion> removed_companions;  // that are known not to, by our removal
  std::optional<reconcile::Refusal> refusal;
};

// Longer than any watch lags: kube::ReflectorOptions gives a silent one 90 s, and the list that
// follows a minute. What has not shown up in a cache by then has come and gone.
inline constexpr std::chrono::seconds kMemorySpan{180};

// More looks than fail in a row at one version before the cache shows what became of the first.
inline constexpr std::size_t kMostDoubtful = 16;

void remember_doubtful(JobMemory::Doubtful doubtful, JobMemory& memory);

// The events of a status in doubt that stands in the job as it is seen now: to be told, and
// forgotten here with all others. None while the job is as it was before.
std::vector<reconcile::Event> settle_doubtful(const api::TrainJob& job, JobMemory& memory);

// Forgets what the cached pods show by now, and what is too old.
void forget_seen(const std::vector<reconcile::Worker>& cached, MonotonicTime now,
                 JobMemory& memory);

// The pods as they are by the cache and by what was written since.
std::vector<reconcile::Worker> merge_pods(std::vector<reconcile::Worker> cached,
                                          const JobMemory& memory);

}  // namespace tilewright::manager
