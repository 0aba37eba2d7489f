#include "controller/reconcile/observe_rendezvous.h"

#include <algorithm>
#include <cmath>

#include "common/contract/reported.h"

namespace tilewright::reconcile {
namespace {

double take_out(std::map<std::string, double>& metrics, const char* name) {
  const auto found = metrics.extract(name);
  return found ? found.mapped() : 0;
}

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

std::optional<std::int64_t> eta(const rendezvous::Progress& progress, std::int64_t global_batch) {
  if (!(progress.examples_per_second > 0) || progress.total_steps <= 0) return std::nullopt;
  const std::int64_t left = std::max<std::int64_t>(progress.total_steps - progress.step, 0);
  return std::llround(static_cast<double>(left * global_batch) / progress.examples_per_second);
}

void take(const rendezvous::Progress& from, std::int64_t global_batch, RendezvousView& view) {
  Progress& to = view.progress;
  to.step = from.step;
  to.total_steps = from.total_steps;
  to.epoch = from.epoch_of_data;
  to.loss = finite(from.loss);
  to.learning_rate = finite(from.learning_rate);
  to.examples_per_second = from.examples_per_second;
  to.tokens_per_second = from.tokens_per_second;
  to.eta_seconds = eta(from, global_batch);
  to.last_checkpoint_step = from.last_checkpoint_step;
  // What is left of them are results for people to read.
  to.metrics = from.metrics;
  view.gflops_per_second = take_out(to.metrics, reported::kGflops);
  view.peak_gflops = take_out(to.metrics, reported::kPeakGflops);
  take_out(to.metrics, reported::kEtaSeconds);
  take_out(to.metrics, reported::kGradNorm);
  view.phase = from.phase;
}

// A pod that waits on a node which reports is one that does not run yet; where the node is away,
// its kubelet may have started it and told nobody.
bool may_run(const Worker& worker) {
  if (worker.phase == WorkerPhase::kPending) return !worker.node.empty() && !worker.node_ready;
  return worker.phase == WorkerPhase::kRunning;
}

}  // namespace

RendezvousView view_of(const rendezvous::Snapshot& snapshot,
                       const std::optional<rendezvous::Progress>& before,
                       std::int64_t global_batch) {
  RendezvousView view;
  if (const auto& said = snapshot.progress ? snapshot.progress : before) {
    take(*said, global_batch, view);
  }
  view.progress.rendezvous_epoch = snapshot.epoch;
  view.progress.latest_epoch = snapshot.latest;
  view.progress.world = snapshot.world;
  view.progress.complete =
      snapshot.phase == rendezvous::Phase::kClosing || snapshot.phase == rendezvous::Phase::kClosed;
  for (const rendezvous::MemberView& member : snapshot.members) {
    Member& shown = view.progress.members[member.who.seat.index];
    if (member.rank >= 0 && (shown.rank < 0 || member.rank < shown.rank)) shown.rank = member.rank;
    shown.finished = member.standing == rendezvous::Standing::kFinished;
  }
  for (const rendezvous::Loss& loss : snapshot.losses) {
    const rendezvous::Seat& seat = loss.lost.who.seat;
    view.progress.losses.push_back({seat.index, seat.slot, loss.lost.rank, loss.when});
  }
  return view;
}

void mark_silent(const std::vector<Worker>& workers, Duration listening, Duration heartbeat_timeout,
                 WallTime now, Progress& progress) {
  if (listening < heartbeat_timeout) return;
  for (const Worker& worker : workers) {
    if (!may_run(worker) || progress.members.contains(worker.index)) continue;
    // One that has only just started may not have found the coordinator yet.
    const auto since = worker.started ? worker.started : worker.created;
    if (since && now - *since < heartbeat_timeout) continue;
    progress.members[worker.index].silent = true;
  }
}

}  // namespace tilewright::reconcile
