// What a training takes from variables of OpenMP and PyTorch, from --threads and from the start of
// its job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/strings.h"
#include "common/contract/training_flags.h"
#include "common/host/cpu_plan.h"

namespace tilewright::cli {

// The value of a variable, an integer from `least` to `most`. Throws Failure(kUsage).
int integer_variable(const GetVariable& variable, const char* name, int least, int if_not_set,
                     int most = 65536);

struct ThreadCount {
  int threads = 1;
  std::string note;  // a line for the log; empty: none
};
// At most one for each CPU that the process may use: more would only wait for each other.
// `flag`: the value of --threads, which has precedence; 0: not given. `omp_num_threads`: the value
// of OMP_NUM_THREADS, a count or a list for nested loops, whose first number counts; empty: the
// threads of the plan.
ThreadCount thread_count(const host::ProcessPlan& plan, std::int64_t flag,
                         const std::string& omp_num_threads);

struct LogLevel {
  std::string name = "info";  // of make_logger()
  std::string note;           // a line for the log; empty: none
};
// `loglevel`: the value of LOGLEVEL, a level of Python's logging.
LogLevel log_level(const std::string& loglevel);

struct ExpandedArguments {
  std::vector<std::string> arguments;
  bool dates = false;  // some held $(date ...)
};
// TILEWRIGHT_LAUNCH_TIME in seconds since 1970; nullopt: not set. Throws Failure(kUsage).
std::optional<std::int64_t> launch_time(const GetVariable& variable);

// Expands each $(date ...) with the start of the job: TILEWRIGHT_LAUNCH_TIME, or now. An
// --output_dir with a date becomes TILEWRIGHT_OUTPUT_DIR if that is set. Throws Failure(kUsage).
ExpandedArguments expand_arguments(const std::vector<std::string>& arguments,
                                   const GetVariable& variable);

// TrainingArguments::parse(), with the home directory in paths. Throws Failure(kUsage).
TrainingArguments parse_arguments(std::span<const std::string> arguments,
                                  const GetVariable& variable);

}  // namespace tilewright::cli
