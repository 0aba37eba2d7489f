// The summary lines that rank 0 logs at the start and the end of a training; see
// common/contract/log_lines.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rendezvous/types.h"
#include "worker/runtime/cpu.h"
#include "worker/train/evaluator.h"
#include "worker/train/job.h"
#include "worker/train/shard_balancer.h"

namespace tilewright::train {

// Longer lines are cut, so that with its timestamp a log line stays under 120 columns.
inline constexpr std::size_t kMaxSummaryColumns = 90;

struct MachineSummary {
  std::string cpu_model;
  int workers = 1;
  int threads = 1;  // per worker
  runtime::Isa isa = runtime::Isa::kRef;
  bool bf16 = true;
  double peak_gflops = 0;  // per worker
};

// How the workers of a membership epoch came to continue from the state in memory.
struct ContinuationSummary {
  std::vector<rendezvous::WorkerProcess> lost, joined;
  bool after_loss = false;  // the last epoch was broken
  std::int64_t step = 0;    // completed steps
  std::int64_t steps_lost = 0;
  int workers = 1;
  std::int64_t bytes = 0;      // of the state, to each worker that had none
  bool in_background = false;  // a part of them follows
  Duration noticed{};          // from the beginning of the broken step
  Duration join{}, connect{}, agree{}, transfer{}, total{};  // since the end of the last epoch
};

// "accuracy 0.8056, f1 0.8168"
std::string format_metrics(const tasks::Metrics& metrics);

std::string machine_line(const MachineSummary& machine);
// `asked`: the max_seq_length that the job was loaded with. Empty if the job has the same.
std::string max_seq_length_line(std::int64_t asked, const Job& job);
std::string data_line(const Job& job);
// Empty if the task's files have a fixed layout.
std::string columns_line(const Job& job);
std::string model_line(const Job& job);
std::string training_line(const Job& job);
std::string results_line(const EvaluationResult& evaluation);
// Of an evaluation during the training: no summary line.
std::string evaluation_line(const EvaluationResult& evaluation, std::int64_t step);
// "recovered: worker 1 lost in step 58, which runs again; 1 worker continues after step 57 in 0.12
// s (join 0.05, connect 0.01, agree 0.01, state 0.00 s; noticed 0.31 s after the step began)"
std::string continuation_line(const ContinuationSummary& continuation);
// At the end of a transfer in the background: "worker 1 has the state: its rest was sent during
// steps 58 to 60". `names`: of the ranks.
std::string state_sent_line(const std::vector<std::string>& names,
                            const std::vector<int>& receivers, std::int64_t first_step,
                            std::int64_t last_step);
// For each rank that has become slow or has recovered, or that is slow and whose shards moved:
// "speed: worker 1 is slow (480 ms per step, others 120 ms): now 1 of 8 shards, was 4". `names`: of
// the ranks. `before`: what the last lines said.
std::vector<std::string> speed_lines(const RankSpeeds& before, const RankSpeeds& now,
                                     const std::vector<std::string>& names, bool exact);
// Without the combined score, which is the mean of the other metrics.
std::string baselines_line(const std::vector<tasks::Baseline>& baselines);

}  // namespace tilewright::train
