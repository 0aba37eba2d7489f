#include "controller/reconcile/status.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/contract/labels.h"

namespace tilewright::reconcile {
namespace {

using api::Phase;
using std::chrono::seconds;

constexpr seconds kProgressInterval{10};
// On a busy cluster pods of one job start this far apart: one write for all of them.
constexpr seconds kSettleTime{10};
// And need this long to start at all: until then the write that tells of that is to come.
constexpr seconds kTimeToStart{30};

bool is_up(const Situation& situation, const api::TrainJobStatus& status, const Worker& worker) {
  return worker.phase == WorkerPhase::kRunning && !worker.terminating &&
         !is_counted(status, worker.uid) && !is_lost(situation, worker);
}

// A failure of this index since the job started or was resumed.
bool has_failed(const api::TrainJobStatus& status, int index) {
  return std::ranges::any_of(status.failures, [&](const api::FailureRecord& record) {
    return record.index == index && record.time && status.start_time &&
           *record.time >= *status.start_time;
  });
}

api::ReplicaCounts counts_of(const Situation& situation, const api::TrainJobStatus& status) {
  api::ReplicaCounts counts;
  counts.desired = situation.sizes.desired;
  for (const Worker& worker : situation.observed.workers) {
    if (worker.phase == WorkerPhase::kSucceeded) {
      // One that is being cleared away (scaled down, suspended) is done with, until the job is.
      if (is_final(status.phase) || !is_counted(status, worker.uid)) ++counts.succeeded;
    } else if (worker.phase == WorkerPhase::kFailed) {
      ++counts.failed;
    } else if (!is_counted(status, worker.uid)) {
      ++counts.active;
      if (worker.ready && is_up(situation, status, worker)) ++counts.ready;
    }
  }
  if (is_final(situation.observed.job.status.phase)) {
    // What has been cleaned up has ended none the less.
    counts.succeeded = std::max(counts.succeeded, status.replicas.succeeded);
    counts.failed = std::max(counts.failed, status.replicas.failed);
  }
  return counts;
}

// Nothing while no worker has told anything: what was known before stays.
std::optional<api::Progress> progress_of(const Observed& observed) {
  if (!observed.progress) return std::nullopt;
  const Progress& from = *observed.progress;
  if (from.total_steps <= 0) return std::nullopt;
  api::Progress progress;
  progress.step = from.step;
  progress.total_steps = from.total_steps;
  progress.epoch = from.epoch;
  progress.loss = from.loss;
  progress.learning_rate = from.learning_rate;
  progress.examples_per_second = from.examples_per_second;
  progress.tokens_per_second = from.tokens_per_second;
  progress.eta_seconds = from.eta_seconds;
  if (from.last_checkpoint_step >= 0) {
    progress.last_checkpoint = fmt::format("checkpoint-{}", from.last_checkpoint_step);
  }
  progress.metrics = from.metrics;
  return progress;
}

}  // namespace

bool is_final(Phase phase) { return phase == Phase::kSucceeded || phase == Phase::kFailed; }

void freeze_sizes(const api::TrainJob& job, api::TrainJobStatus& status) {
  if (status.nominal_workers == 0) status.nominal_workers = api::nominal_workers(job);
  if (status.virtual_shards == 0) status.virtual_shards = api::virtual_shards(job);
}

Phase phase_of(const Situation& situation, const api::TrainJobStatus& status) {
  int up = 0;
  int done = 0;
  bool restarting = false;
  for (int index = 0; index < situation.sizes.desired; ++index) {
    const auto found = situation.workers.find(index);
    const Worker* worker = found == situation.workers.end() ? nullptr : found->second;
    if (worker != nullptr && worker->phase == WorkerPhase::kSucceeded) {
      ++done;
    } else if (worker != nullptr && is_up(situation, status, *worker)) {
      ++up;
    } else {
      restarting = restarting || has_failed(status, index);
    }
  }
  if (up + done >= situation.sizes.desired) return Phase::kRunning;
  // With fewer than wanted, the job runs if an epoch of exactly those that are up is training.
  const auto& progress = situation.observed.progress;
  if (up >= situation.sizes.min && progress && progress->rendezvous_epoch > 0 &&
      progress->world == up * situation.sizes.processes_per_worker) {
    return Phase::kRunning;
  }
  if (restarting) return Phase::kRestarting;
  // More replicas were asked for: those that are there go on.
  const bool growing = status.phase == Phase::kRunning && up >= situation.sizes.min;
  return growing ? Phase::kRunning : Phase::kPending;
}

void fill_in(const Situation& situation, api::TrainJobStatus& status) {
  const Observed& observed = situation.observed;
  std::erase_if(status.counted_pods, [&](const std::string& uid) {
    return std::ranges::none_of(observed.workers,
                                [&](const Worker& worker) { return worker.uid == uid; });
  });
  status.observed_generation = observed.job.metadata.generation;
  status.selector = fmt::format("{}={},{}={}", labels::kJobName, observed.job.metadata.name,
                                labels::kRole, labels::kRoleWorker);
  status.replicas = counts_of(situation, status);
  if (observed.progress) {
    status.rendezvous_epoch = std::max(status.rendezvous_epoch,
                                       static_cast<std::int64_t>(observed.progress->latest_epoch));
  }
  std::optional<api::Progress> progress = progress_of(observed);
  if (!progress) return;
  // The same news at another time is no news.
  if (status.progress) progress->updated = status.progress->updated;
  if (progress == status.progress) return;
  progress->updated = std::chrono::floor<seconds>(situation.now);
  status.progress = std::move(progress);
}

bool worth_writing(const Situation& situation, const api::TrainJobStatus& current,
                   const api::TrainJobStatus& wanted, Timer& timer) {
  if (wanted == current) return false;
  api::TrainJobStatus rest = wanted;
  rest.replicas = current.replicas;
  rest.progress = current.progress;
  if (rest != current) return true;

  bool write = false;
  if (wanted.progress != current.progress) {
    const bool first = !current.progress || !current.progress->updated;
    // Results of an evaluation come seldom, and the last ones just before the workers go.
    if (!first && wanted.progress->metrics != current.progress->metrics) return true;
    write = first || timer.due(*current.progress->updated + kProgressInterval);
  }
  if (wanted.replicas != current.replicas) {
    if (wanted.replicas.ready == wanted.replicas.desired) return true;
    WallTime latest{};
    for (const Worker& worker : situation.observed.workers) {
      for (const auto& time : {worker.created, worker.started, worker.finished}) {
        if (time) latest = std::max(latest, *time);
      }
    }
    api::ReplicaCounts but_created = wanted.replicas;
    but_created.active = current.replicas.active;
    const bool only_created = but_created == current.replicas;
    write = timer.due(latest + (only_created ? kTimeToStart : kSettleTime)) || write;
  }
  return write;
}

}  // namespace tilewright::reconcile
