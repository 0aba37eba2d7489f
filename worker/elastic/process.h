// A started process whose output is read line by line, and which does not outlive its starter.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/net/socket.h"

namespace tilewright::elastic {

// Cuts a stream into lines and puts a prefix before each. A line longer than kMaxLine is broken.
class LinePrefixer {
 public:
  static constexpr std::size_t kMaxLine = 64 << 10;
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}
  // The whole lines that `bytes` complete, prefixed, each with its newline.
  std::string feed(std::string_view bytes);
  // What is left of a line without an end.
  std::string flush();

 private:
  std::string prefix_;
  std::string rest_;
};

struct ProcessSpec {
  std::vector<std::string> command;                // the program (a path) and its arguments
  std::map<std::string, std::string> environment;  // over this process's own
};

class Process {
 public:
  // Throws Failure(kUsage) when the program cannot be run. The thread that calls must live at least
  // as long as the process shall.
  explicit Process(const ProcessSpec& spec);
  ~Process();  // kills what still runs, with all that it started
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // To the process and all that it started (its process group).
  void signal(int number) const;
  int exit_fd() const { return pidfd_.get(); }     // readable when the process has ended
  int output_fd() const { return output_.get(); }  // -1: at its end
  int error_fd() const { return error_.get(); }
  pid_t pid() const { return pid_; }

  // What stands in a pipe now, at most 64 KiB; closes it at its end.
  std::string read_output() { return read_from(output_); }
  std::string read_error() { return read_from(error_); }
  // After its end: the exit code, 128 + n after signal n. nullopt: it runs.
  std::optional<int> exit_code();

 private:
  static std::string read_from(net::FileDescriptor& pipe);

  pid_t pid_ = -1;
  std::optional<int> exit_code_;
  net::FileDescriptor pidfd_, output_, error_;
};

}  // namespace tilewright::elastic
