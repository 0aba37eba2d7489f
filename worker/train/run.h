// Runs a training from flags to results: joins the job's workers, trains, evaluates and writes the
// model. When a membership epoch ends early, it joins the next one and resumes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/strings.h"
#include "common/contract/training_flags.h"
#include "worker/collectives/mpi_port.h"
#include "worker/elastic/session.h"
#include "worker/hub/options.h"
#include "worker/metrics/exposition.h"
#include "worker/runtime/cpu.h"

namespace tilewright::train {

struct RunOptions {
  std::vector<runtime::Isa> isas;  // that this process can use, slowest first
  std::string cpu_model;
  int threads = 1;                 // of this process; --threads is already applied
  std::vector<int> thread_cpus;    // see ThreadPool; used if it has one for each thread
  int default_world_size = 1;      // if --nominal_workers is 0
  int default_virtual_shards = 0;  // if --virtual_shards is 0; 0: automatic
  std::int64_t worker_index = 0;
  // All workers take the output directory of one, because the flag holds a date, which they can
  // have expanded at other times or in other time zones.
  bool output_dir_of_one = false;
  // When the agent that starts rank 0 was started, in seconds since 1970; nullopt: no agent, or it
  // starts processes of other ranks only.
  std::optional<std::int64_t> launch_time;
  std::string fault;  // TILEWRIGHT_FAULT
  // Address of /metrics; nullopt: not served.
  std::optional<net::Address> metrics_address;
  metrics::Identity identity;
  // Exchanges gradients through an MPI library whose ranks are those of the membership epoch.
  // nullptr: through shared memory or over TCP.
  collectives::MpiPort* mpi = nullptr;
  bool terminal = false;  // standard error is a terminal
  // Called at the end, with what rank 0 prints on standard output: the blocks of metrics, or
  // without an output directory the content of all_results.json. Empty on other ranks.
  std::function<void(const std::string&)> print_results = [](const std::string&) {};
  // Reads the environment, for the hub.
  GetVariable variable = [](const char*) { return std::string(); };
  const net::WakeUp* cancel = nullptr;  // ends downloads; may be null
};

// Makes the hub's options from the flags and the environment. Progress goes to the log. `options`
// and `log` outlive the result.
hub::HubOptions hub_options(const TrainingArguments& arguments, const RunOptions& options,
                            Logger& log);

// Throws Failure if the training cannot complete.
void run_training(const TrainingArguments& arguments, const RunOptions& options,
                  elastic::Session& session, Logger& log);

}  // namespace tilewright::train
