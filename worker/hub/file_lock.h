// The lock of a file in the cache. huggingface_hub takes the same lock (flock(2) on
// .locks/FOLDER/ETAG.lock), so that Python programs and workers download a file once.
#pragma once

#include <filesystem>
#include <functional>

#include "common/base/file_descriptor.h"
#include "worker/hub/options.h"

namespace tilewright::hub {

class FileLock {
 public:
  // Waits while another process or thread holds the lock. `progress` returns a number that changes
  // while the holder works: the size of its file. Fails with kHubUnavailable if it does not change
  // for options.limits.lock, with kTerminated when cancelled, and with output_error_code() if the
  // lock file cannot be created. The lock file stays: removing it would split the waiters.
  FileLock(const std::filesystem::path& path, const HubOptions& options,
           const std::function<std::uintmax_t()>& progress);

  // False if the file system has no locks. Then several processes may download the same file; each
  // must use a staging file of its own.
  bool locked() const { return locked_; }

 private:
  FileDescriptor file_;  // closing it releases the lock, also when the process dies
  bool locked_ = false;
};

}  // namespace tilewright::hub
