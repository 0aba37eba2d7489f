// One child process: started with its own group, CPUs, environment and output pipes, and never able
// to outlive the process that started it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"

namespace tilewright {

struct ChildCommand {
  std::filesystem::path program;
  std::vector<std::string> arguments;    // without the program's own name
  std::vector<std::string> environment;  // NAME=value, all of it
  std::filesystem::path working_directory;
  std::vector<int> cpus;  // the CPUs it may run on; empty: those of its parent
  bool separate_error = false;
};

// This process's variables with those of `over` over them, as NAME=VALUE.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& over);

class ChildProcess {
 public:
  // The kernel kills the child with SIGKILL when the calling *thread* ends, so call this from the
  // thread that lives as long as the program. Standard input is /dev/null; standard output and
  // standard error share one pipe so that their lines keep their order, unless `separate_error`.
  // Errors: kUsage when the program cannot be run as asked, kInternal when the system refuses.
  static Result<ChildProcess> start(const ChildCommand& command);

  ChildProcess(ChildProcess&&) = default;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills the whole group if it still runs, and reaps the child.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Readable once the child has ended.
  int exit_fd() const { return pid_fd_.get(); }
  // Non-blocking; -1 after close_output(), or where there is none.
  int output_fd() const { return output_.get(); }
  int error_fd() const { return error_.get(); }
  void close_output() { output_.reset(); }
  // What stands in a pipe now, at most 64 KiB; closes it at its end.
  std::string read_output() { return read_from(output_); }
  std::string read_error() { return read_from(error_); }

  // To every process of the child's group.
  void signal_group(int signal_number) const;

  // The exit code once the child has ended (128 + n where signal n ended it, as a shell and a
  // kubelet report it), else nothing. What the child left behind in its group is killed before it
  // is reaped.
  std::optional<int> poll_exit();

 private:
  ChildProcess(pid_t pid, FileDescriptor pid_fd, FileDescriptor output, FileDescriptor error)
      : pid_(pid),
        pid_fd_(std::move(pid_fd)),
        output_(std::move(output)),
        error_(std::move(error)) {}
  static std::string read_from(FileDescriptor& pipe);

  pid_t pid_;
  FileDescriptor pid_fd_;  // empty only in an object moved from
  FileDescriptor output_, error_;
  std::optional<int> exit_code_;
};

}  // namespace tilewright
