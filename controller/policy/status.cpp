#include "controller/policy/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "common/base/strings.h"
#include "common/contract/labels.h"
#include "controller/policy/success.h"

namespace tilewright::policy {
namespace {

using api::Phase;
using std::chrono::seconds;

constexpr seconds kProgressInterval{10};
constexpr std::string_view kCheckpointPrefix = "checkpoint-";
// On a busy cluster the pods of a job start within this time of each other. One status write covers
// them all.
constexpr seconds kSettleTime{10};
// Pods usually start within this time, which changes the counts again.
constexpr seconds kTimeToStart{30};

bool is_up(const JobState& state, const api::TrainJobStatus& status, const Worker& worker) {
  return worker.phase == WorkerPhase::kRunning && !worker.terminating &&
         !is_counted(status, worker.uid) && !is_lost(state, worker);
}

api::ReplicaCounts counts_of(const JobState& state, const api::TrainJobStatus& status) {
  api::ReplicaCounts counts;
  counts.desired = state.sizes.desired;
  counts.succeeded = deleted_successes(state, status);
  for (const Worker& worker : state.observed.workers) {
    if (worker.phase == WorkerPhase::kSucceeded) {
      // A counted worker is being deleted (scale-down, suspension).
      if (is_final(status.phase) || !is_counted(status, worker.uid)) ++counts.succeeded;
    } else if (worker.phase == WorkerPhase::kFailed) {
      ++counts.failed;
    } else if (!is_counted(status, worker.uid)) {
      ++counts.active;
      if (worker.ready && is_up(state, status, worker)) ++counts.ready;
    }
  }
  if (is_final(state.observed.job.status.phase)) {
    // Workers that have been cleaned up still count.
    counts.succeeded = std::max(counts.succeeded, status.replicas.succeeded);
    counts.failed = std::max(counts.failed, status.replicas.failed);
  }
  return counts;
}

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

// Returns std::nullopt before the first report: the status then keeps its progress.
std::optional<api::Progress> progress_of(const Observed& observed) {
  if (!observed.rendezvous) return std::nullopt;
  const rendezvous::Progress& from = observed.rendezvous->progress;
  if (from.total_steps <= 0) return std::nullopt;
  api::Progress progress;
  progress.step = from.step;
  progress.total_steps = from.total_steps;
  // JSON has no NaN, which would also differ from itself: the status would be written for ever.
  progress.epoch = finite(from.epoch_of_data).value_or(0);
  progress.loss = finite(from.loss);
  progress.learning_rate = finite(from.learning_rate);
  progress.examples_per_second = finite(from.examples_per_second).value_or(0);
  progress.tokens_per_second = finite(from.tokens_per_second).value_or(0);
  progress.eta_seconds = observed.rendezvous->eta_seconds;
  if (from.last_checkpoint_step >= 0) {
    progress.last_checkpoint = fmt::format("{}{}", kCheckpointPrefix, from.last_checkpoint_step);
  }
  progress.metrics = from.metrics;
  std::erase_if(progress.metrics, [](const auto& metric) { return !finite(metric.second); });
  for (const rendezvous::SlowWorker& slow : from.slow_workers) {
    progress.slow_workers.push_back({.index = slow.process.worker_index,
                                     .process = slow.process.local_rank,
                                     .slowdown = finite(slow.slowdown).value_or(0),
                                     .shards = slow.shards});
  }
  return progress;
}

// A job that has succeeded has completed all its steps, even if no leader received the last
// reports. The epoch is proportional to the step; what else they held is unknown.
void complete(api::Progress& progress) {
  if (progress.step >= progress.total_steps) return;
  if (progress.step > 0) {
    progress.epoch *=
        static_cast<double>(progress.total_steps) / static_cast<double>(progress.step);
  }
  progress.step = progress.total_steps;
  progress.loss.reset();
  progress.learning_rate.reset();
  progress.eta_seconds.reset();
}

}  // namespace

bool has_failed(const api::TrainJobStatus& status, int index) {
  return std::ranges::any_of(status.failures, [&](const api::FailureRecord& record) {
    return record.index == index && record.time && status.start_time &&
           *record.time >= *status.start_time;
  });
}

bool is_final(Phase phase) { return phase == Phase::kSucceeded || phase == Phase::kFailed; }

void freeze_sizes(const api::TrainJob& job, api::TrainJobStatus& status) {
  if (status.nominal_workers == 0) status.nominal_workers = api::nominal_workers(job);
  if (status.virtual_shards == 0) status.virtual_shards = api::virtual_shards(job);
}

Phase phase_of(const JobState& state, const api::TrainJobStatus& status) {
  int up = 0;
  int done = 0;
  bool restarting = false;
  for (int index = 0; index < state.sizes.desired; ++index) {
    const auto found = state.workers.find(index);
    const Worker* worker = found == state.workers.end() ? nullptr : found->second;
    if (has_succeeded(state, status, index)) {
      ++done;
    } else if (worker != nullptr && is_up(state, status, *worker)) {
      ++up;
    } else {
      restarting = restarting || has_failed(status, index);
    }
  }
  if (up + done >= state.sizes.desired) return Phase::kRunning;
  // With fewer workers than desired, the job runs if the current epoch consists of exactly the
  // workers that are up.
  const auto& rendezvous = state.observed.rendezvous;
  if (up >= state.sizes.min && rendezvous && rendezvous->epoch > 0 &&
      (state.sizes.automatic_processes
           ? rendezvous->world >= up
           : rendezvous->world == up * state.sizes.processes_per_worker)) {
    return Phase::kRunning;
  }
  if (restarting) return Phase::kRestarting;
  // After a scale-up the existing workers keep training.
  const bool growing = status.phase == Phase::kRunning && up >= state.sizes.min;
  return growing ? Phase::kRunning : Phase::kPending;
}

void fill_status(const JobState& state, api::TrainJobStatus& status) {
  const Observed& observed = state.observed;
  std::erase_if(status.counted_pods, [&](const std::string& uid) {
    return std::ranges::none_of(observed.workers,
                                [&](const Worker& worker) { return worker.uid == uid; });
  });
  status.observed_generation = observed.job.metadata.generation;
  status.selector = fmt::format("{}={},{}={}", labels::kJobName, observed.job.metadata.name,
                                labels::kRole, labels::kRoleWorker);
  status.replicas = counts_of(state, status);
  if (observed.rendezvous) {
    status.rendezvous_epoch = std::max(
        status.rendezvous_epoch, static_cast<std::int64_t>(observed.rendezvous->latest_epoch));
    if (!observed.rendezvous->isa.empty()) status.instruction_set = observed.rendezvous->isa;
  }
  if (status.output_directory.empty() && runs_tilewright(observed)) {
    status.output_directory = observed.traits.output_directory;
  }
  std::optional<api::Progress> progress = progress_of(observed);
  if (!progress) progress = status.progress;
  if (!progress) return;
  // The job must not forget a checkpoint because a worker that has found none reports first.
  if (last_checkpoint_step(status) >= 0 && progress->last_checkpoint.empty()) {
    progress->last_checkpoint = status.progress->last_checkpoint;
  }
  if (status.phase == Phase::kSucceeded) complete(*progress);
  // The last report of workers that no longer train.
  if (status.phase != Phase::kRunning) progress->slow_workers.clear();
  // A new timestamp alone is not a change.
  if (status.progress) progress->updated = status.progress->updated;
  if (progress == status.progress) return;
  progress->updated = std::chrono::floor<seconds>(state.now);
  status.progress = std::move(progress);
}

std::int64_t last_checkpoint_step(const api::TrainJobStatus& status) {
  if (!status.progress) return -1;
  std::string_view name = status.progress->last_checkpoint;
  if (!name.starts_with(kCheckpointPrefix)) return -1;
  name.remove_prefix(kCheckpointPrefix.size());
  return parse_number<std::int64_t>(name, 0).value_or(-1);
}

bool needs_status_write(const JobState& state, const api::TrainJobStatus& current,
                        const api::TrainJobStatus& wanted, Timer& timer) {
  if (wanted == current) return false;
  api::TrainJobStatus rest = wanted;
  rest.replicas = current.replicas;
  rest.progress = current.progress;
  if (rest != current) return true;

  bool write = false;
  if (wanted.progress != current.progress) {
    const bool first = !current.progress || !current.progress->updated;
    // Evaluations are rare, and the last one comes just before the workers exit.
    if (!first && wanted.progress->metrics != current.progress->metrics) return true;
    write = first || timer.due(*current.progress->updated + kProgressInterval);
  }
  if (wanted.replicas != current.replicas) {
    if (wanted.replicas.ready == wanted.replicas.desired) return true;
    WallTime latest{};
    for (const Worker& worker : state.observed.workers) {
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

}  // namespace tilewright::policy
