#include "controller/reconcile/restarts.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/reconcile/failure.h"

namespace tilewright::reconcile {
namespace {

using api::FailureCause;
using api::FailureRecord;
using std::chrono::seconds;

constexpr seconds kFirstDelay{1};
constexpr seconds kLongestDelay{300};
constexpr seconds kHealthyAfter{600};  // as a kubelet forgives a crash loop

constexpr std::int64_t kFirstRetryableCode = 128;

// An end that is not in the counts yet.
struct NewFailure {
  const Worker* worker;  // null: vanished
  FailureRecord record;
};

// It was given a key that nobody takes any more, so it can join no later epoch.
bool is_shut_out(const Situation& situation, const Worker& worker) {
  const std::string& wanted = situation.observed.key_id;
  return !worker.key_id.empty() && !wanted.empty() && worker.key_id != wanted;
}

std::optional<Finding> finding_of(const Situation& situation, const Worker& worker) {
  if (worker.phase == WorkerPhase::kSucceeded) return std::nullopt;
  if (worker.phase == WorkerPhase::kFailed && !worker.terminating) return Finding::kEnded;
  if (worker.terminating) {
    // Asked to go, it ends with some code of its own; what matters is that somebody asked.
    return is_lost(situation, worker) ? Finding::kLost : Finding::kDeleted;
  }
  if (is_lost(situation, worker)) return Finding::kLost;
  if (is_shut_out(situation, worker)) return Finding::kShutOut;
  return std::nullopt;
}

// Workers that the status counts as being there and that nobody has seen end: removed with force
// while nobody looked. Their UIDs are unknown; the next status says how many are there now, so that
// none is found twice.
std::vector<NewFailure> vanished(const Situation& situation, const api::TrainJobStatus& status) {
  std::int64_t known = 0;
  for (const Worker& worker : situation.observed.workers) {
    if (!is_counted(status, worker.uid)) ++known;
  }
  std::int64_t missing = status.replicas.active + status.replicas.succeeded - known;
  // Fewer are wanted now than then: who is missing may be one that is not wanted any more.
  if (situation.sizes.desired < status.replicas.desired) missing = 0;
  std::vector<NewFailure> found;
  for (int index = 0; index < situation.sizes.desired && missing > 0; ++index) {
    if (situation.workers.contains(index)) continue;
    Worker ghost;
    ghost.index = index;
    ghost.name = api::worker_name(situation.observed.job, index);
    found.push_back(
        {nullptr, failure_of(situation.observed, ghost, Finding::kVanished, situation.now)});
    --missing;
  }
  return found;
}

const FailureRecord* last_out_of_memory(const api::TrainJobStatus& status) {
  const auto found = std::find_if(
      status.failures.rbegin(), status.failures.rend(),
      [](const FailureRecord& record) { return record.cause == FailureCause::kOutOfMemory; });
  return found == status.failures.rend() ? nullptr : &*found;
}

std::int64_t exit_code_of(const FailureRecord& record) {
  return record.signal ? kFirstRetryableCode + *record.signal : record.exit_code.value_or(0);
}

// Nothing: the worker is tried again (or, out of memory, waits for a change of the job).
std::optional<JobEnd> judge(const Situation& situation, const api::TrainJobStatus& status,
                            const FailureRecord& record) {
  const api::TrainJob& job = situation.observed.job;
  const auto policy = job.spec.worker.restart_policy.value_or(api::RestartPolicy::kOnFailure);
  const std::string words = in_words(job, record);
  const auto failed = [&](const char* reason, std::string message) {
    return JobEnd{api::Phase::kFailed, reason, std::move(message)};
  };
  if (policy == api::RestartPolicy::kNever) {
    return failed("RestartPolicyNever", words + ", and restartPolicy is Never");
  }
  if (record.cause == FailureCause::kInfrastructure) return std::nullopt;
  if (record.cause == FailureCause::kOutOfMemory) {
    const FailureRecord* before = last_out_of_memory(status);
    if (situation.observed.runtime.job_can_change || before == nullptr ||
        record.step > before->step) {
      return std::nullopt;
    }
    return failed("OutOfMemory",
                  words + " twice without progress; raise spec.worker.resources.memory");
  }
  if (policy == api::RestartPolicy::kExitCode && exit_code_of(record) < kFirstRetryableCode) {
    return failed("PermanentExitCode",
                  fmt::format("{}, which restartPolicy ExitCode takes for permanent", words));
  }
  const std::int64_t limit =
      job.spec.elastic_policy.max_restarts.value_or(api::kDefaultMaxRestarts);
  if (status.restarts.program >= limit) {
    return failed("BackoffLimitExceeded", fmt::format("{}, and {} of {} restarts are used up",
                                                      words, status.restarts.program, limit));
  }
  return std::nullopt;
}

bool blocks_for_memory(const Situation& situation, const api::TrainJobStatus& status,
                       const FailureRecord& record) {
  if (record.cause != FailureCause::kOutOfMemory) return false;
  const FailureRecord* before = last_out_of_memory(status);
  return situation.observed.runtime.job_can_change && before != nullptr &&
         record.step <= before->step;
}

void count(api::RestartCounts& restarts, FailureCause cause) {
  switch (cause) {
    case FailureCause::kProgram:
      ++restarts.program;
      return;
    case FailureCause::kInfrastructure:
      ++restarts.infrastructure;
      return;
    case FailureCause::kOutOfMemory:
      ++restarts.out_of_memory;
      return;
  }
}

void enter(api::TrainJobStatus& status, FailureRecord record) {
  status.failures.push_back(std::move(record));
  if (status.failures.size() > api::kLedgerLength) status.failures.erase(status.failures.begin());
}

// The job has been blocked for memory in this very version of it.
bool blocked_for_memory(const Situation& situation, const api::TrainJobStatus& status) {
  const api::Condition* blocked = status.find_condition(api::condition::kBlocked);
  return blocked != nullptr && blocked->status == api::ConditionStatus::kTrue &&
         blocked->reason == "OutOfMemory" &&
         blocked->observed_generation == situation.observed.job.metadata.generation;
}

bool died_of_memory(const api::TrainJobStatus& status, int index) {
  const auto last =
      std::find_if(status.failures.rbegin(), status.failures.rend(),
                   [&](const FailureRecord& record) { return record.index == index; });
  return last != status.failures.rend() && last->cause == FailureCause::kOutOfMemory;
}

}  // namespace

WallTime restart_time(const api::TrainJobStatus& status, int index) {
  std::optional<WallTime> later;  // of the failure after the one looked at
  WallTime last{};
  int series = 0;
  for (auto record = status.failures.rbegin(); record != status.failures.rend(); ++record) {
    if (record->index != index || !record->time) continue;
    if (!later) last = *record->time;
    if (later && *later - *record->time > kHealthyAfter) break;
    later = record->time;
    ++series;
  }
  if (series < 2) return last;
  // The ledger holds ten, so the shift is at most 8.
  return last + std::min(kFirstDelay * (1 << (series - 2)), kLongestDelay);
}

Restarts carry_out_restarts(const Situation& situation, api::TrainJobStatus& status) {
  Restarts restarts;
  const bool still_blocked = blocked_for_memory(situation, status);
  std::vector<NewFailure> fresh = vanished(situation, status);
  for (const auto& [index, worker] : situation.workers) {
    const auto finding = finding_of(situation, *worker);
    if (!finding) continue;
    restarts.failed.push_back(worker);
    if (!is_counted(status, worker->uid)) {
      fresh.push_back({worker, failure_of(situation.observed, *worker, *finding, situation.now)});
    }
    // A pod that is terminating on a dead node goes only by force.
    if (!worker->terminating || is_lost(situation, *worker)) {
      restarts.deletions.push_back(
          deletion_of(situation, *worker, "its end is counted, and its name is needed again"));
    }
  }
  std::ranges::sort(fresh, {}, [](const NewFailure& failure) { return failure.record.index; });

  api::TrainJobStatus ahead = status;  // each failure is judged by what those before it used up
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    const FailureRecord& record = fresh[i].record;
    const auto end = judge(situation, ahead, record);
    if (end && !restarts.end) restarts.end = end;
    if (blocks_for_memory(situation, ahead, record)) {
      restarts.waits_for_change.insert(static_cast<int>(record.index));
    }
    if (!end) count(ahead.restarts, record.cause);
    enter(ahead, record);
    if (fresh[i].worker != nullptr) mark_counted(ahead, fresh[i].worker->uid);
  }
  // The failure that ends a job restarts nothing, and neither do those found beside it.
  if (restarts.end) ahead.restarts = status.restarts;
  status = std::move(ahead);

  for (int index = 0; index < situation.sizes.desired; ++index) {
    restarts.not_before[index] = restart_time(status, index);
    if (still_blocked && died_of_memory(status, index)) restarts.waits_for_change.insert(index);
  }
  return restarts;
}

}  // namespace tilewright::reconcile
