// A whole training from flags to results: joins the job's workers, trains, evaluates, writes; takes
// up a new membership epoch whenever the old one ends.
#pragma once

#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/contract/training_flags.h"
#include "worker/elastic/session.h"
#include "worker/metrics/exposition.h"
#include "worker/runtime/cpu.h"

namespace tilewright::train {

struct RunOptions {
  runtime::Isa isa = runtime::Isa::kRef;
  std::string cpu_model;
  int threads = 1;
  int world_at_start = 1;  // where the flags name no number of workers
  std::int64_t worker_index = 0;
  std::string fault;  // TILEWRIGHT_FAULT
  // Where /metrics is served, and by whom; nullopt: nowhere.
  std::optional<net::Address> metrics_address;
  metrics::Identity identity;
  bool terminal = false;
};

// Throws Failure for everything that keeps the training from its end.
void run_training(const TrainingArguments& arguments, const RunOptions& options,
                  elastic::Session& session, Logger& log);

}  // namespace tilewright::train
