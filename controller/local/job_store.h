// A local job's folder: STATE_DIR/NAME with job.json (spec and status), the rendezvous key, the
// logs and a lock that keeps a second `up` out.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"
#include "controller/api/trainjob.h"

namespace tilewright::local {

// 32 lower-case hexadecimal digits in a UUID's groups (RFC 4122, version 4).
std::string random_uid();

class JobStore {
 public:
  // Takes the job up, and completes `job`: a name of its own for generateName, UID, status.
  //   no such folder       a new job
  //   an unfinished job    goes on, with its UID and status and the spec that `job` has now
  //   a finished job       refused, unless `replace`: then everything of it goes, and a new job
  //   begins
  // Errors: kUsage where it is refused or another `up` runs it; kOutput where the folder cannot be
  // written; kManifest where job.json is damaged.
  static Result<JobStore> open(const std::filesystem::path& state_dir, api::TrainJob& job,
                               bool replace);

  // Atomically; the status is what a later `up` starts from.
  Status save(const api::TrainJob& job) const;

  bool resumed() const { return resumed_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path log_folder() const { return folder_ / "logs"; }
  std::filesystem::path key_file() const { return folder_ / "job-key"; }

 private:
  JobStore(std::filesystem::path folder, FileDescriptor lock)
      : folder_(std::move(folder)), lock_(std::move(lock)) {}
  Status take_up(api::TrainJob& job, bool replace);
  Status make_key() const;

  std::filesystem::path folder_;
  FileDescriptor lock_;
  bool resumed_ = false;
};

}  // namespace tilewright::local
