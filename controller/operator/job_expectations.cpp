#include "controller/operator/job_expectations.h"

#include <algorithm>
#include <utility>

namespace tilewright::controller {

using policy::Worker;

void add_unknown_outcome(JobExpectations::UnknownOutcome unknown_outcome,
                         JobExpectations& expectations) {
  if (unknown_outcome.events.empty()) return;  // no event can be lost
  if (expectations.unknown_outcomes.size() == kMaxUnknownOutcomes)
    expectations.unknown_outcomes.erase(expectations.unknown_outcomes.begin());
  expectations.unknown_outcomes.push_back(std::move(unknown_outcome));
}

std::vector<policy::Event> resolve_unknown_outcomes(const api::TrainJob& job,
                                                    JobExpectations& expectations) {
  const bool open =
      expectations.unknown_outcomes.empty() ||
      expectations.unknown_outcomes.front().base_version == job.metadata.resource_version;
  if (open) return {};
  const auto all = std::exchange(expectations.unknown_outcomes, {});
  const auto done = std::ranges::find(all, job.status, &JobExpectations::UnknownOutcome::status);
  return done == all.end() ? std::vector<policy::Event>() : done->events;
}

void drop_observed(const std::vector<Worker>& cached, MonotonicTime now,
                   JobExpectations& expectations) {
  const auto find = [&](const std::string& uid) {
    return std::ranges::find(cached, uid, &Worker::uid);
  };
  std::erase_if(expectations.created, [&](const auto& entry) {
    return find(entry.first) != cached.end() || now - entry.second.when > kExpectationTimeout;
  });
  std::erase_if(expectations.deleted, [&](const auto& entry) {
    // The cache may not have shown the created pod yet.
    if (expectations.created.contains(entry.first)) return false;
    const auto pod = find(entry.first);
    const bool shown = pod == cached.end() || (pod->terminating && !entry.second.gone);
    return shown || now - entry.second.when > kExpectationTimeout;
  });
}

std::vector<Worker> merge_pods(std::vector<Worker> cached, const JobExpectations& expectations) {
  for (const auto& [uid, created] : expectations.created) {
    if (std::ranges::find(cached, uid, &Worker::uid) == cached.end()) {
      cached.push_back(created.worker);
    }
  }
  std::erase_if(cached, [&](Worker& worker) {
    const auto deleted = expectations.deleted.find(worker.uid);
    if (deleted == expectations.deleted.end()) return false;
    worker.terminating = true;
    return deleted->second.gone;
  });
  std::ranges::sort(cached, {},
                    [](const Worker& worker) { return std::make_pair(worker.index, worker.uid); });
  return cached;
}

}  // namespace tilewright::controller
