#include "worker/train/progress_reporter.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "common/contract/training_report.h"
#include "worker/train/log_history.h"

namespace tilewright::train {

ProgressReporter::ProgressReporter(const Job& job, const Trainer& trainer,
                                   elastic::Session& session, metrics::Exposition* exposition,
                                   ProgressPrinter* printer, kernels::PeakMeter& peak, int world)
    : trainer_(trainer),
      session_(session),
      exposition_(exposition),
      printer_(printer),
      peak_(peak),
      world_(world),
      exact_(job.settings.exact) {
  // A resumed training has not gone back to step 0.
  progress_.step = trainer.step();
  progress_.epoch_of_data = trainer.state().epoch;
  progress_.total_steps = job.schedule.total_steps;
  progress_.last_checkpoint_step = trainer.last_checkpoint_step();
  progress_.metrics = last_evaluation_metrics(trainer.state());
}

void ProgressReporter::begin_phase(const char* phase) {
  progress_.phase = phase;
  send();
}

void ProgressReporter::set_speeds(const RankSpeeds& speeds,
                                  std::span<const rendezvous::MemberId> members, int rank) {
  const auto shards_of = [&](std::size_t of_rank) {
    return exact_ ? static_cast<int>(speeds.split[of_rank].size()) : 0;
  };
  shards_ = shards_of(static_cast<std::size_t>(rank));
  progress_.slow_workers.clear();
  for (std::size_t i = 0; i < speeds.speeds.size(); ++i) {
    if (!speeds.speeds[i].slow) continue;
    const rendezvous::WorkerProcess process =
        members.empty() ? rendezvous::WorkerProcess{static_cast<int>(i), 0} : members[i].process;
    progress_.slow_workers.push_back({process, speeds.speeds[i].slowdown, shards_of(i)});
  }
}

void ProgressReporter::add_step(const StepReport& report, const Rates& rates) {
  rates_ = rates;
  const double peak_gflops = peak_.peak_for(rates.gflops, world_);
  progress_.step = report.step;
  progress_.epoch_of_data = report.epoch;
  progress_.loss = report.loss;
  progress_.learning_rate = report.learning_rate;
  progress_.examples_per_second = rates.examples_per_second;
  progress_.tokens_per_second = rates.tokens_per_second;
  progress_.last_checkpoint_step = trainer_.last_checkpoint_step();
  std::map<std::string, double> figures = {
      {training_report::kGflops, rates.gflops},
      {training_report::kPeakGflops, peak_gflops},
      {training_report::kEtaSeconds, rates.eta_seconds},
      {training_report::kGradNorm, report.grad_norm},
      {training_report::kComputeSeconds, trainer_.compute_seconds()},
      {training_report::kExchangeSeconds, rates.exchange_seconds},
      {training_report::kHiddenExchangeSeconds, rates.hidden_exchange_seconds},
      {training_report::kShards, static_cast<double>(shards_)},
      {training_report::kFailedCheckpoints, static_cast<double>(trainer_.failed_checkpoints())},
      {training_report::kCheckpointWaitSeconds, trainer_.checkpoint_wait_seconds()},
      {training_report::kRecoveries, static_cast<double>(trainer_.recovery_counts().recoveries)},
      {training_report::kStepsLost, static_cast<double>(trainer_.recovery_counts().steps_lost)}};
  figures.merge(progress_.metrics);  // the results of the last evaluation stay
  progress_.metrics = std::move(figures);
  send();
  if (printer_ != nullptr) printer_->show(report, rates, peak_gflops, monotonic_now());
}

void ProgressReporter::end_line() {
  if (printer_ != nullptr) printer_->end_line();
}

void ProgressReporter::add_evaluation(const EvaluationResult& evaluation) {
  for (const auto& [name, value] : evaluation.metrics) {
    progress_.metrics[fmt::format("{}{}{}", training_report::kEvaluationPrefix, name,
                                  evaluation.suffix)] = value;
  }
}

void ProgressReporter::send() {
  session_.report(progress_);
  if (exposition_ != nullptr) exposition_->set(progress_);
}

}  // namespace tilewright::train
