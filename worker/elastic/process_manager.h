// The process manager of an MPI launcher: what the processes of a run exchange through it before
// they are connected. Its key-value space belongs to the run; its traffic between hosts is as
// private as the launcher's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/net/wait.h"
#include "worker/elastic/launcher.h"

namespace tilewright::elastic {

class ProcessManager {
 public:
  virtual ~ProcessManager() = default;
  // The longest text that share() can send, in bytes.
  virtual std::size_t max_text() const = 0;
  // Returns rank 0's `text` on every rank; other ranks' `text` is ignored. The text has no spaces.
  // Throws Failure(kPeerLost): not all ranks called it in time, or the connection broke.
  virtual std::string share(std::string_view text, const net::Wait& wait) = 0;
  // This process is done. Without it the launcher counts its exit as a failure.
  virtual void finish() = 0;
  // Asks the launcher to end all processes of the run; they exit with `code`. Returns.
  virtual void abort(int code) = 0;
};

// Connects to the process manager that started this process; nullptr with KeyValueSpace::kNone.
// Throws Failure(kUsage): the variables name none, or libpmix.so.2 is missing.
std::unique_ptr<ProcessManager> connect_process_manager(const LaunchedProcess& process,
                                                        const GetVariable& environment,
                                                        const net::Wait& wait);

}  // namespace tilewright::elastic
