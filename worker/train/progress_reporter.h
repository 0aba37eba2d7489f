// Sends the progress of this worker to the coordinator, to /metrics, and, on rank 0, to the log.
#pragma once

#include <cstdint>
#include <span>

#include "worker/elastic/session.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/metrics/exposition.h"
#include "worker/train/job.h"
#include "worker/train/progress.h"
#include "worker/train/trainer.h"

namespace tilewright::train {

class ProgressReporter {
 public:
  // `peak`: of the CPUs of one of the `world` workers. The references outlive the object.
  ProgressReporter(const Job& job, const Trainer& trainer, elastic::Session& session,
                   metrics::Exposition* exposition, ProgressPrinter* printer,
                   kernels::PeakMeter& peak, int world);

  void begin_phase(const char* phase);
  // Before the first step, and when they change. `members`: by rank; empty in a single process.
  void set_speeds(const RankSpeeds& speeds, std::span<const rendezvous::MemberId> members,
                  int rank);
  void add_step(const StepReport& report, const Rates& rates);
  const Rates& rates() const { return rates_; }  // after the last step
  // Before another line is logged.
  void end_line();
  // Sent with the next step or phase, and all that follow until the next evaluation.
  void add_evaluation(const EvaluationResult& evaluation);

 private:
  void send();

  const Trainer& trainer_;
  elastic::Session& session_;
  metrics::Exposition* exposition_;  // nullptr: /metrics is not served
  ProgressPrinter* printer_;         // nullptr: not rank 0
  kernels::PeakMeter& peak_;
  const int world_;
  const bool exact_;
  std::int64_t shards_ = 0;  // of this process
  rendezvous::Progress progress_;
  Rates rates_;
};

}  // namespace tilewright::train
