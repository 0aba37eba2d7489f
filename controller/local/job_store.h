// The state directory of a local job, STATE_DIR/NAME: job.json (spec and status), the rendezvous
// key, the logs, the UIDs of discarded jobs, and a lock against a second `up`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file_lock.h"
#include "common/base/result.h"
#include "common/contract/pod_paths.h"
#include "controller/api/trainjob.h"

namespace tilewright::local {

class JobStore {
 public:
  // Opens or creates the directory and fills in `job`: the name for generateName, UID and status.
  // The job exists once save() has written it.
  //   no directory         creates a new job
  //   an unfinished job    resumes it with its UID and status, and with the spec of `job`, which
  //                        must not change the training if that has begun
  //   a finished job       error
  // `replace` deletes an existing job first. Errors: kUsage, the job is finished or its training
  // has changed, another `up` runs it, its name is a path or the directory is not a job's;
  // output_error_code(), the directory is not writable; kOutput, its file system has no locks;
  // kManifest, job.json is invalid.
  static Result<JobStore> open(const std::filesystem::path& state_dir, api::TrainJob& job,
                               bool replace);

  // Writes job.json atomically. A later `up` starts from the saved status.
  Status save(const api::TrainJob& job) const;

  bool resumed() const { return resumed_; }
  // Whether `replace` has discarded the job of this UID, whose output the new job therefore may
  // replace.
  bool has_discarded(std::string_view uid) const;
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path log_folder() const { return folder_ / "logs"; }
  std::filesystem::path key_file() const { return folder_ / kJobKeyName; }

 private:
  JobStore(std::filesystem::path folder, FileLock lock)
      : folder_(std::move(folder)), lock_(std::move(lock)) {}
  Status load_or_create(api::TrainJob& job, bool replace);
  Status discard();
  Status ensure_key() const;

  std::filesystem::path folder_;
  FileLock lock_;
  bool resumed_ = false;
  std::vector<std::string> discarded_;  // UIDs, newest first
};

}  // namespace tilewright::local
