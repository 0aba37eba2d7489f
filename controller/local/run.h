// `tilewright up` from the manifest to the exit code.
#pragma once

#include <filesystem>
#include <string>

namespace tilewright::local {

struct RunOptions {
  std::filesystem::path manifest;
  std::filesystem::path state_dir = ".tilewright";
  std::filesystem::path worker_binary;  // empty: beside this program, else in PATH
  std::string name;                     // in place of metadata.name; resumes a job by its name
  std::string log_level = "error";      // of the rendezvous and of ours
  bool replace = false;                 // begin anew though a job of that name has ended
};

// Sentences go to standard error. 0: the job succeeded; kJobFailed: it failed; kInterrupted and
// kTerminated: stopped by a signal, the job can be resumed; else what the Error says.
int run_up(const RunOptions& options);

}  // namespace tilewright::local
