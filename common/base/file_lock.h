// An exclusive flock(2), which also works between pods that share a volume.
#pragma once

#include <filesystem>
#include <functional>

#include "common/base/file_descriptor.h"

namespace tilewright {

class FileLock {
 public:
  enum class State {
    kLocked,
    kGivenUp,      // another process or thread holds the lock
    kUnsupported,  // the file system has no locks
  };

  // Creates the file if it is missing; it stays, because removing it would split the waiters. A
  // symbolic link is refused, because it would create a file elsewhere. flock(2) has no deadline,
  // and a holder in another pod cannot signal: while the lock is held, keep_waiting() is called,
  // which waits a moment and returns whether to try again. Throws Failure with output_error_code()
  // if the file cannot be created.
  FileLock(const std::filesystem::path& path, const std::function<bool()>& keep_waiting);

  State state() const { return state_; }

 private:
  FileDescriptor file_;  // closing it releases the lock, also when the process dies
  State state_ = State::kLocked;
};

}  // namespace tilewright
