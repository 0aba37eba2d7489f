// What a training takes from variables of OpenMP and PyTorch, and from the start of its job.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tilewright::cli {

using GetVariable = std::function<std::string(const char* name)>;  // empty: not set

struct ThreadCount {
  int threads = 1;
  std::string note;  // a line for the log; empty: none
};
// Of a process that shares its host's CPUs with `processes` - 1 others. `omp_num_threads`: the value
// of OMP_NUM_THREADS, a count or a list for nested loops, whose first number counts; empty: one
// thread per physical core.
ThreadCount thread_count(int physical_cores, int usable_cpus, int processes,
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
// Expands each $(date ...) with the start of the job: TILEWRIGHT_LAUNCH_TIME, or now. An --output_dir
// with a date becomes TILEWRIGHT_OUTPUT_DIR if that is set. Throws Failure(kUsage).
ExpandedArguments expand_arguments(const std::vector<std::string>& arguments,
                                   const GetVariable& variable);

}  // namespace tilewright::cli
