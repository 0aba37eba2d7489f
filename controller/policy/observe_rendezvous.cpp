#include "controller/policy/observe_rendezvous.h"

#include <algorithm>
#include <cmath>

#include "common/contract/training_report.h"

namespace tilewright::policy {
namespace {

double extract_or_zero(std::map<std::string, double>& metrics, const char* name) {
  const auto found = metrics.extract(name);
  return found ? found.mapped() : 0;
}

std::optional<std::int64_t> eta(const rendezvous::Progress& progress, std::int64_t global_batch) {
  if (!(progress.examples_per_second > 0) || progress.total_steps <= 0) return std::nullopt;
  const std::int64_t left = std::max<std::int64_t>(progress.total_steps - progress.step, 0);
  // The figures come from a member of the job.
  const double expected =
      static_cast<double>(left) * static_cast<double>(global_batch) / progress.examples_per_second;
  constexpr double kLongest = 1e9;  // 31 years
  return expected <= kLongest ? std::optional(std::llround(expected)) : std::nullopt;
}

// Moves GFLOP/s and peak GFLOP/s into `view` and drops the other figures, so that the metrics hold
// only evaluation results.
void take_figures(RendezvousView& view) {
  std::map<std::string, double>& metrics = view.progress.metrics;
  view.gflops_per_second = extract_or_zero(metrics, training_report::kGflops);
  view.peak_gflops = extract_or_zero(metrics, training_report::kPeakGflops);
  std::erase_if(metrics, [](const auto& metric) {
    return !metric.first.starts_with(training_report::kEvaluationPrefix);
  });
}

// A Pending pod is not running if its node reports, for example that it is not ready yet. If the
// node does not report, its kubelet may have started the pod.
bool may_be_running(const Worker& worker) {
  if (worker.phase == WorkerPhase::kPending) {
    return !worker.node.empty() && worker.node_state == NodeState::kUnreachable;
  }
  return worker.phase == WorkerPhase::kRunning;
}

}  // namespace

RendezvousView view_of(const rendezvous::Snapshot& snapshot,
                       const std::optional<rendezvous::Progress>& before,
                       std::int64_t global_batch) {
  RendezvousView view;
  if (const auto& report = snapshot.progress ? snapshot.progress : before) {
    view.progress = *report;
    view.eta_seconds = eta(view.progress, global_batch);
    take_figures(view);
  }
  view.epoch = snapshot.epoch;
  view.latest_epoch = snapshot.latest_epoch;
  view.world = snapshot.world;
  view.isa = snapshot.isa;
  view.complete =
      snapshot.phase == rendezvous::Phase::kClosing || snapshot.phase == rendezvous::Phase::kClosed;
  for (const rendezvous::MemberView& member : snapshot.members) {
    Member& shown = view.members[member.who.process.worker_index];
    if (member.rank >= 0 && (shown.rank < 0 || member.rank < shown.rank)) shown.rank = member.rank;
    shown.finished = member.state == rendezvous::MemberState::kFinished;
    shown.lacks_isa = shown.lacks_isa || member.lacks_isa;
  }
  for (const rendezvous::Loss& loss : snapshot.losses) {
    const rendezvous::WorkerProcess& process = loss.lost.who.process;
    view.lost_processes.push_back(
        {process.worker_index, process.local_rank, loss.lost.rank, loss.when});
  }
  return view;
}

void mark_silent(const std::vector<Worker>& workers, Duration listening, Duration heartbeat_timeout,
                 WallTime now, RendezvousView& view) {
  if (listening < heartbeat_timeout) return;
  for (const Worker& worker : workers) {
    if (!may_be_running(worker) || view.members.contains(worker.index)) continue;
    // A worker that has just started may not have connected yet.
    auto since = worker.created;
    if (worker.scheduled) since = worker.scheduled;
    if (worker.started) since = worker.started;
    if (since && now - *since < heartbeat_timeout) continue;
    view.members[worker.index].silent = true;
  }
}

}  // namespace tilewright::policy
