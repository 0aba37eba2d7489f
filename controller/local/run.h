// Runs `tilewright up`: from the manifest to the exit code.
#pragma once

#include <filesystem>
#include <string>

namespace tilewright::local {

struct RunOptions {
  std::filesystem::path manifest;
  std::filesystem::path state_dir = ".tilewright";
  std::filesystem::path worker_binary;  // empty: found by find_worker_program()
  std::string name;                     // replaces metadata.name, for example to resume a job
  std::string log_level = "error";      // of the rendezvous server
  bool replace = false;                 // discards an existing job of the same name
  bool verbose = false;                 // prints every line of every worker
};

// Returns the exit code: 0 if the job succeeded, kJobFailed if it failed, kInterrupted or
// kTerminated if a signal stopped it and it can be resumed, the code of the Error if it could not
// start. Errors go to standard error.
int run_up(const RunOptions& options);

}  // namespace tilewright::local
