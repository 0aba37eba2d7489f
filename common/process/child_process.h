// A child process with its own process group, CPUs, environment and output pipes. The kernel kills
// it when its parent dies.
#pragma once

#include <sys/types.h>

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"

namespace tilewright {

struct ChildCommand {
  std::filesystem::path program;
  std::vector<std::string> arguments;    // without argv[0]
  std::vector<std::string> environment;  // NAME=value; the child inherits nothing else
  std::filesystem::path working_directory;
  std::vector<int> cpus;  // CPU affinity; empty: that of the parent
  bool separate_error = false;
  bool input_pipe = false;  // write_input() reaches its standard input, otherwise /dev/null
};

// This process's environment with the variables of `over` set, as NAME=VALUE.
std::vector<std::string> environment_with_overrides(const std::map<std::string, std::string>& over);

// The program of this name in the first directory of `search_path` (as in PATH) that has it;
// nullopt if none has. Only absolute directories: the working directory never provides a program.
std::optional<std::filesystem::path> find_program(std::string_view name,
                                                  std::string_view search_path);
bool is_program(const std::filesystem::path& path);  // an executable file

class ChildProcess {
 public:
  // The kernel kills the child with SIGKILL when the calling *thread* ends, so call this from a
  // thread that lives as long as the program. Standard output and
  // standard error share one pipe, so that their lines keep their order, unless `separate_error`.
  // Errors: kUsage if the program, directory or CPUs are wrong, kInternal if a system call fails.
  static Result<ChildProcess> start(const ChildCommand& command);

  ChildProcess(ChildProcess&&) = default;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills the process group if the child is still running, and reaps the child.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Readable once the child has ended.
  int exit_fd() const { return pid_fd_.get(); }
  // Non-blocking; -1 after close_output() or the end of the stream; error_fd() is also -1 without
  // separate_error.
  int output_fd() const { return output_.get(); }
  int error_fd() const { return error_.get(); }
  void close_output() { output_.reset(); }
  // Whether the pipe took all of a text of at most PIPE_BUF bytes; never blocks.
  bool write_input(std::string_view text);
  // The child reads the end of the stream.
  void close_input() { input_ = {}; }
  // Reads at most 64 KiB of the available output; closes the pipe at the end of the stream.
  std::string read_output() { return read_from(output_); }
  std::string read_error() { return read_from(error_); }

  // Sends a signal to every process of the child's group.
  void signal_group(int signal_number) const;

  // The exit code, or 128 + n after signal n as in a shell and the kubelet; nullopt while the child
  // runs. Kills the remaining processes of the child's group before it reaps the child.
  std::optional<int> poll_exit();

 private:
  using Pipe = std::array<FileDescriptor, 2>;  // read end, write end
  ChildProcess(pid_t pid, FileDescriptor pid_fd, Pipe input, FileDescriptor output,
               FileDescriptor error)
      : pid_(pid),
        pid_fd_(std::move(pid_fd)),
        input_(std::move(input)),
        output_(std::move(output)),
        error_(std::move(error)) {}
  static std::string read_from(FileDescriptor& pipe);

  pid_t pid_;
  FileDescriptor pid_fd_;  // empty only in a moved-from object
  // Both ends: while the read end is open here too, a write raises no SIGPIPE.
  Pipe input_;
  FileDescriptor output_, error_;
  std::optional<int> exit_code_;
};

}  // namespace tilewright
