// One child process: started with its own group, CPUs, environment and output pipe, and never able
// to outlive the process that started it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "controller/local/descriptor.h"

namespace tilewright::local {

struct Command {
  std::filesystem::path program;
  std::vector<std::string> arguments;    // without the program's own name
  std::vector<std::string> environment;  // NAME=value, all of it
  std::filesystem::path working_directory;
  std::vector<int> cpus;  // the CPUs it may run on; empty: those of its parent
};

class Process {
 public:
  // The kernel kills the child with SIGKILL when the calling *thread* ends, so call this from the
  // thread that lives as long as the program. Standard input is /dev/null; standard output and
  // standard error share one pipe so that their lines keep their order.
  static Result<Process> start(const Command& command);

  Process(Process&&) = default;
  Process& operator=(Process&&) = delete;
  // Kills the whole group if it still runs, and reaps the child.
  ~Process();

  pid_t pid() const { return pid_; }
  // Readable once the child has ended.
  int exit_fd() const { return pid_fd_.get(); }
  // Non-blocking; -1 after close_output().
  int output_fd() const { return output_.get(); }
  void close_output() { output_.reset(); }

  // To every process of the child's group.
  void signal_group(int signal_number) const;

  // The exit code once the child has ended (128 + n where signal n ended it, as a shell and a
  // kubelet report it), else nothing. What the child left behind in its group is killed before it
  // is reaped.
  std::optional<int> poll_exit();

 private:
  Process(pid_t pid, Descriptor pid_fd, Descriptor output)
      : pid_(pid), pid_fd_(std::move(pid_fd)), output_(std::move(output)) {}

  pid_t pid_;
  Descriptor pid_fd_;  // empty only in an object moved from
  Descriptor output_;
  std::optional<int> exit_code_;
};

}  // namespace tilewright::local
