#include "controller/reconcile/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "common/base/exit_codes.h"
#include "common/base/text.h"

namespace tilewright::reconcile {
namespace {

// Of pods (status.reason, the DisruptionTarget condition's reason) and of ours. A kubelet that does
// not admit a pod it was given says Outof... or UnexpectedAdmissionError.
constexpr std::array<std::string_view, 24> kInfrastructureReasons = {
    "Evicted",
    "Preempted",
    "Preempting",
    "PreemptionByScheduler",
    "PreemptionByKubeScheduler",
    "DisruptionTarget",
    "EvictionByEvictionAPI",
    "DeletionByTaintManager",
    "DeletionByPodGC",
    "TerminationByKubelet",
    "NodeLost",
    "NodeShutdown",
    "NodeAffinity",
    "Shutdown",
    "Terminated",
    "UnexpectedAdmissionError",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "ContainerStatusUnknown",
    "Deleted",
    "Vanished",
    "PeerLost",
    "KeyReplaced",
};

constexpr int kSignalBase = 128;
constexpr int kMaxSignal = 64;

std::string_view signal_name(std::int64_t number) {
  switch (number) {
    case 2:
      return "SIGINT";
    case 4:
      return "SIGILL";
    case 6:
      return "SIGABRT";
    case 7:
      return "SIGBUS";
    case 8:
      return "SIGFPE";
    case 9:
      return "SIGKILL";
    case 11:
      return "SIGSEGV";
    case 15:
      return "SIGTERM";
    default:
      return "";
  }
}

std::vector<std::string> ledger_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.size() > api::kLedgerLines) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(api::kLedgerLines));
  }
  for (std::string& line : lines) line.resize(whole_characters(line, api::kLedgerLineBytes));
  return lines;
}

// That the worker's first process has or had last; -1: it was in no epoch. A socket closes with its
// process, long before a kubelet tells of the end: by then the worker is among the lost.
int last_rank(const Progress& progress, const Worker& worker) {
  std::map<int, int> by_slot;
  for (const Loss& loss : progress.losses) {
    // What was lost before this worker began were processes of one that had its index before.
    const bool own = !worker.started || loss.when >= *worker.started;
    if (loss.index == worker.index && own) by_slot[loss.slot] = loss.rank;
  }
  int rank = -1;
  const auto take = [&rank](int other) {
    if (other >= 0 && (rank < 0 || other < rank)) rank = other;
  };
  for (const auto& [slot, lost] : by_slot) take(lost);
  const auto member = progress.members.find(worker.index);
  if (member != progress.members.end()) take(member->second.rank);
  return rank;
}

void set_reason(api::FailureRecord& record, const Worker& worker, Finding finding) {
  using api::FailureCause;
  const bool told = is_infrastructure_reason(worker.reason);
  record.cause = FailureCause::kInfrastructure;
  switch (finding) {
    case Finding::kLost:
      record.reason = "NodeLost";
      return;
    case Finding::kDeleted:
      record.reason = told ? worker.reason : "Deleted";
      return;
    case Finding::kVanished:
      record.reason = "Vanished";
      return;
    case Finding::kShutOut:
      record.reason = "KeyReplaced";
      return;
    case Finding::kEnded:
      break;
  }
  if (told) {
    record.reason = worker.reason;
  } else if (worker.reason == "OOMKilled") {
    record.cause = FailureCause::kOutOfMemory;
    record.reason = worker.reason;
  } else if (worker.exit_code == static_cast<int>(ExitCode::kPeerLost)) {
    // The one that went away is the cause, and has an entry of its own.
    record.reason = "PeerLost";
  } else if (!worker.exit_code) {
    record.reason = worker.reason.empty() ? "ContainerStatusUnknown" : worker.reason;
  } else {
    record.cause = FailureCause::kProgram;
    record.reason = worker.reason.empty() ? "Error" : worker.reason;
  }
}

}  // namespace

bool is_infrastructure_reason(const std::string& reason) {
  return std::ranges::find(kInfrastructureReasons, reason) != kInfrastructureReasons.end();
}

api::FailureRecord failure_of(const Observed& observed, const Worker& worker, Finding finding,
                              WallTime now) {
  api::FailureRecord record;
  record.time = std::chrono::floor<std::chrono::seconds>(worker.finished.value_or(now));
  record.index = worker.index;
  record.pod = worker.name;
  record.pod_uid = worker.uid;
  record.node = worker.node;
  if (observed.progress) {
    // Before the first report it would be a zero that nobody has told.
    const Progress& progress = *observed.progress;
    if (progress.step > 0 || progress.total_steps > 0) record.step = progress.step;
    record.rank = last_rank(progress, worker);
  }
  if (worker.exit_code) {
    const int code = *worker.exit_code;
    // 144 is also 128 + 16, but no program of ours is ended by SIGSTKFLT.
    const bool own = code == static_cast<int>(ExitCode::kPeerLost);
    if (!own && code > kSignalBase && code <= kSignalBase + kMaxSignal) {
      record.signal = code - kSignalBase;
    } else {
      record.exit_code = code;
    }
  }
  record.last_lines = ledger_lines(worker.last_lines);
  set_reason(record, worker, finding);
  return record;
}

std::string in_words(const api::TrainJob& job, const api::FailureRecord& record) {
  const std::string who =
      record.node.empty()
          ? fmt::format("worker {} ({})", record.index, record.pod)
          : fmt::format("worker {} ({} on {})", record.index, record.pod, record.node);
  if (record.cause == api::FailureCause::kOutOfMemory) {
    const auto memory = job.spec.worker.resources.find("memory");
    return memory == job.spec.worker.resources.end()
               ? fmt::format("{} was killed for the memory it used", who)
               : fmt::format("{} was killed for using more than its {} of memory", who,
                             memory->second.text);
  }
  if (record.reason == "PeerLost") return fmt::format("{} lost its peers", who);
  if (record.reason == "NodeLost") return fmt::format("{} was lost with its node", who);
  if (record.reason == "Deleted") return fmt::format("{} was deleted", who);
  if (record.reason == "KeyReplaced") {
    return fmt::format("{} had a key that the operator has replaced", who);
  }
  if (record.reason == "Vanished") return fmt::format("{} is not there any more", who);
  if (record.cause == api::FailureCause::kInfrastructure) {
    return fmt::format("{} was taken away ({})", who, record.reason);
  }
  if (record.signal) {
    const std::string_view name = signal_name(*record.signal);
    return fmt::format("{} was ended by signal {}{}", who, *record.signal,
                       name.empty() ? "" : fmt::format(" ({})", name));
  }
  // Programs say last why they give up.
  return fmt::format(
      "{} ended with exit code {}{}", who, record.exit_code.value_or(-1),
      record.last_lines.empty() ? "" : fmt::format(" ({})", record.last_lines.back()));
}

}  // namespace tilewright::reconcile
