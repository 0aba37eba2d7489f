#include "controller/manager/job_memory.h"

#include <algorithm>
#include <utility>

namespace tilewright::manager {

using reconcile::Worker;

void remember_doubtful(JobMemory::Doubtful doubtful, JobMemory& memory) {
  if (doubtful.events.empty()) return;  // there is nothing that could be lost
  if (memory.doubtful.size() == kMostDoubtful) memory.doubtful.erase(memory.doubtful.begin());
  memory.doubtful.push_back(std::move(doubtful));
}

std::vector<reconcile::Event> settle_doubtful(const api::TrainJob& job, JobMemory& memory) {
  const bool open = memory.doubtful.empty() ||
                    memory.doubtful.front().upon_version == job.metadata.resource_version;
  if (open) return {};
  const auto all = std::exchange(memory.doubtful, {});
  const auto done = std::ranges::find(all, job.status, &JobMemory::Doubtful::status);
  return done == all.end() ? std::vector<reconcile::Event>() : done->events;
}

void forget_seen(const std::vector<Worker>& cached, MonotonicTime now, JobMemory& memory) {
  const auto find = [&](const std::string& uid) {
    return std::ranges::find(cached, uid, &Worker::uid);
  };
  std::erase_if(memory.created, [&](const auto& entry) {
    return find(entry.first) != cached.end() || now - entry.second.when > kMemorySpan;
  });
  std::erase_if(memory.deleted, [&](const auto& entry) {
    // It can be gone from the cache before it has been there.
    if (memory.created.contains(entry.first)) return false;
    const auto pod = find(entry.first);
    const bool shown = pod == cached.end() || (pod->terminating && !entry.second.gone);
    return shown || now - entry.second.when > kMemorySpan;
  });
}

std::vector<Worker> merge_pods(std::vector<Worker> cached, const JobMemory& memory) {
  for (const auto& [uid, created] : memory.created) {
    if (std::ranges::find(cached, uid, &Worker::uid) == cached.end()) {
      cached.push_back(created.worker);
    }
  }
  std::erase_if(cached, [&](Worker& worker) {
    const auto deleted = memory.deleted.find(worker.uid);
    if (deleted == memory.deleted.end()) return false;
    worker.terminating = true;
    return deleted->second.gone;
  });
  std::ranges::sort(cached, {},
                    [](const Worker& worker) { return std::make_pair(worker.index, worker.uid); });
  return cached;
}

}  // namespace tilewright::manager
