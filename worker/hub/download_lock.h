// The lock of a file in the cache. huggingface_hub takes the same lock (flock(2) on
// .locks/FOLDER/ETAG.lock), so that Python programs and workers download a file once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "common/base/file_lock.h"
#include "worker/hub/options.h"

namespace tilewright::hub {

// Waits while another process or thread holds the lock. `progress` returns a number that changes
// while the holder works: the size of its file. Fails with kHubUnavailable if it does not change
// for options.limits.lock, with kTerminated when cancelled, and with output_error_code() if the
// lock file cannot be created. On a file system without locks (State::kUnsupported) several
// processes may download the same file; each must use a staging file of its own.
FileLock lock_download(const std::filesystem::path& path, const HubOptions& options,
                       const std::function<std::uintmax_t()>& progress);

}  // namespace tilewright::hub
