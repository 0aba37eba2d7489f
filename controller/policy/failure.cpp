#include "controller/policy/failure.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/base/exit_codes.h"
#include "common/base/strings.h"
#include "controller/policy/messages.h"

namespace tilewright::policy {
namespace {

std::vector<std::string> last_log_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.size() > api::kFailureLogLines) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(api::kFailureLogLines));
  }
  for (std::string& line : lines) line.resize(utf8_prefix_length(line, api::kFailureLogLineBytes));
  return lines;
}

// The rank of the worker's first process, or -1 if it was in no epoch. The coordinator usually sees
// the socket close before the kubelet reports the exit, so the process may be among the lost ones.
int last_rank(const RendezvousView& rendezvous, const Worker& worker) {
  std::map<int, int> by_local_rank;
  for (const LostProcess& loss : rendezvous.lost_processes) {
    // A process that was lost before this worker started belonged to the previous worker of this
    // index.
    const bool own = !worker.started || loss.when >= *worker.started;
    if (loss.index == worker.index && own) by_local_rank[loss.local_rank] = loss.rank;
  }
  int lowest = -1;
  const auto include = [&lowest](int rank) {
    if (rank >= 0 && (lowest < 0 || rank < lowest)) lowest = rank;
  };
  for (const auto& [local_rank, rank] : by_local_rank) include(rank);
  const auto member = rendezvous.members.find(worker.index);
  if (member != rendezvous.members.end()) include(member->second.rank);
  return lowest;
}

// The reason of an exit code with which every pod of a TrainJob would exit; null: another code.
const char* permanent_reason(std::optional<int> exit_code) {
  if (exit_code == static_cast<int>(ExitCode::kUsage)) return failure_reason::kInvalidFlags;
  if (exit_code == static_cast<int>(ExitCode::kOutput)) return failure_reason::kOutputRefused;
  return nullptr;
}

// `own_codes`: exit codes have the meanings of ExitCode. `trainjob`: from the start of the pod.
void set_reason(api::FailureRecord& record, const Worker& worker, FailureKind kind, bool own_codes,
                bool trainjob) {
  using api::FailureCause;
  const bool stopped_by_cluster = worker.failure_cause == FailureCause::kInfrastructure;
  record.cause = FailureCause::kInfrastructure;
  switch (kind) {
    case FailureKind::kNodeLost:
      record.reason = failure_reason::kNodeLost;
      return;
    case FailureKind::kDeleted:
      record.reason = stopped_by_cluster ? worker.reason : failure_reason::kDeleted;
      return;
    case FailureKind::kDisappeared:
      record.reason = failure_reason::kVanished;
      return;
    case FailureKind::kStaleKey:
      record.reason = failure_reason::kKeyReplaced;
      return;
    case FailureKind::kExited:
      break;
  }
  if (stopped_by_cluster) {
    record.reason = worker.reason;
  } else if (worker.failure_cause == FailureCause::kOutOfMemory) {
    record.cause = FailureCause::kOutOfMemory;
    record.reason = worker.reason;
  } else if (own_codes && worker.exit_code == static_cast<int>(ExitCode::kPeerLost)) {
    // The lost peer is the cause and has its own entry.
    record.reason = failure_reason::kPeerLost;
  } else if (!worker.exit_code) {
    record.reason = worker.reason.empty() ? failure_reason::kUnknown : worker.reason;
  } else if (own_codes && worker.exit_code == static_cast<int>(ExitCode::kCheckpointMissing)) {
    record.cause = FailureCause::kProgram;
    record.reason = failure_reason::kCheckpointMissing;
  } else if (own_codes && worker.exit_code == static_cast<int>(ExitCode::kDiverged)) {
    record.cause = FailureCause::kProgram;
    record.reason = failure_reason::kDiverged;
  } else if (trainjob && permanent_reason(worker.exit_code) != nullptr) {
    record.cause = FailureCause::kProgram;
    record.reason = permanent_reason(worker.exit_code);
  } else {
    record.cause = FailureCause::kProgram;
    record.reason = worker.reason.empty() ? failure_reason::kError : worker.reason;
  }
}

}  // namespace

api::FailureRecord failure_of(const Observed& observed, const Worker& worker, FailureKind kind,
                              WallTime now) {
  api::FailureRecord record;
  record.time = std::chrono::floor<std::chrono::seconds>(worker.finished.value_or(now));
  record.index = worker.index;
  record.pod = worker.name;
  record.pod_uid = worker.uid;
  record.node = worker.node;
  if (observed.rendezvous) {
    // Before the first report the step is unknown, not 0.
    const rendezvous::Progress& progress = observed.rendezvous->progress;
    if (progress.step > 0 || progress.total_steps > 0) record.step = progress.step;
    record.rank = last_rank(*observed.rendezvous, worker);
  }
  record.init_container = worker.init_container;
  const bool own_codes = runs_tilewright(observed) && worker.init_container.empty();
  const bool trainjob = observed.traits.runs_tilewright && worker.init_container.empty();
  if (worker.exit_code) {
    const int code = *worker.exit_code;
    // 144 is also 128 + 16 (SIGSTKFLT), a signal that Linux never sends.
    const bool peer_lost = own_codes && code == static_cast<int>(ExitCode::kPeerLost);
    if (!peer_lost && code > kSignalExitCodeBase && code <= kSignalExitCodeBase + kMaxSignal) {
      record.signal = code - kSignalExitCodeBase;
    } else {
      record.exit_code = code;
    }
  }
  record.last_lines = last_log_lines(worker.last_lines);
  set_reason(record, worker, kind, own_codes, trainjob);
  return record;
}

}  // namespace tilewright::policy
