// A child process that runs a function of the test and exchanges lines with it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/base/file_descriptor.h"
#include "common/net/wait.h"

namespace tilewright::rendezvous {

inline bool write_line(int fd, const std::string& line) {
  const std::string text = line + "\n";
  return write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Returns a line, or "" if none arrives in time.
inline std::string read_line(int fd, Duration within) {
  const MonotonicTime deadline = monotonic_now() + within;
  std::string line;
  while (net::wait_ready(fd, POLLIN, deadline) == net::Ready::kYes) {
    char c = 0;
    if (read(fd, &c, 1) != 1) return "";
    if (c == '\n') return line;
    line += c;
  }
  return "";
}

class ForkedProcess {
 public:
  // Create it before any thread, because a process with threads must not fork without exec. `run`
  // gets the ends of the pipes to the test; its result is the exit code.
  explicit ForkedProcess(const std::function<int(int in, int out)>& run) {
    int to[2], from[2], alive[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0 || pipe2(alive, O_CLOEXEC) != 0)
      throw std::runtime_error("pipe2");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(run(to[0], from[1]));
    }
    close(to[0]);
    close(from[1]);
    close(alive[1]);
    in_ = FileDescriptor(to[1]);
    out_ = FileDescriptor(from[0]);
    alive_ = FileDescriptor(alive[0]);
  }
  ForkedProcess(ForkedProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        in_(std::move(other.in_)),
        out_(std::move(other.out_)),
        alive_(std::move(other.alive_)) {}
  ~ForkedProcess() {
    if (pid_ > 0) end(SIGKILL);
  }

  // The read end of a pipe that closes when the process dies, like a connection to it.
  int alive_fd() const { return alive_.get(); }
  void tell(const std::string& line) { write_line(in_.get(), line); }
  std::string read() { return read_line(out_.get(), std::chrono::seconds(20)); }
  // Returns once the process does not run.
  void stop() {
    kill(pid_, SIGSTOP);
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
  }
  void resume() { kill(pid_, SIGCONT); }
  int end(int signal = 0) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  FileDescriptor in_, out_, alive_;
};

}  // namespace tilewright::rendezvous
