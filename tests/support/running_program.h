// A program under test: its output is read from a pipe, and waits are event-driven with deadlines.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern char** environ;

namespace tilewright::testing {

// Far above any expected duration, with sanitizers and on a busy machine.
inline constexpr std::chrono::seconds kTimeout{180};

// Waits until `fd` is readable or hung up; returns false on timeout.
inline bool wait_readable(int fd, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd polled{fd, POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

// Detects the exit of a process that is not a child, through its pidfd.
class ProcessExitWatch {
 public:
  explicit ProcessExitWatch(pid_t pid) : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
    if (fd_ < 0) throw std::runtime_error("no process " + std::to_string(pid));
  }
  ~ProcessExitWatch() { close(fd_); }
  ProcessExitWatch(const ProcessExitWatch&) = delete;
  ProcessExitWatch& operator=(const ProcessExitWatch&) = delete;
  bool wait_for_exit() const {
    return wait_readable(fd_, std::chrono::steady_clock::now() + kTimeout);
  }

 private:
  int fd_;
};

// Starts a program in `folder` with `output` as its standard output and standard error.
inline pid_t spawn_program(const std::filesystem::path& program,
                           const std::vector<std::string>& arguments,
                           const std::filesystem::path& folder, int output) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), program.string());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + program.string());
  return pid;
}

// Returns the exit code of a process that has exited: 128 + n after signal n.
inline int reap(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs a program whose output goes to a full pipe that has no reader. Returns its exit code, or -1
// and a test failure on timeout.
inline int run_without_reader(const std::filesystem::path& program,
                              const std::vector<std::string>& arguments,
                              const std::filesystem::path& folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  const std::vector<char> filler(static_cast<std::size_t>(fcntl(ends[1], F_GETPIPE_SZ)));
  if (::write(ends[1], filler.data(), filler.size()) != static_cast<ssize_t>(filler.size())) {
    throw std::runtime_error("cannot fill a pipe");
  }
  const pid_t pid = spawn_program(program, arguments, folder, ends[1]);
  const bool exited = ProcessExitWatch(pid).wait_for_exit();
  if (!exited) {
    ADD_FAILURE() << program << " waits for a reader of its output";
    kill(pid, SIGKILL);
  }
  const int code = reap(pid);
  close(ends[0]);
  close(ends[1]);
  return exited ? code : -1;
}

class RunningProgram {
 public:
  // Captures standard output and standard error together; the working directory is `folder`.
  RunningProgram(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                 const std::filesystem::path& folder) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    output_ = ends[0];
    pid_ = spawn_program(program, arguments, folder, ends[1]);
    close(ends[1]);
  }
  ~RunningProgram() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(output_);
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t pid() const { return pid_; }
  // Does nothing after wait(), because pid -1 would signal every process.
  void send(int signal_number) const {
    if (pid_ > 0) kill(pid_, signal_number);
  }
  const std::string& output() const { return text_; }

  // Waits until the output contains `text`; fails the test if the program exits or on timeout.
  bool wait_for_output(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (text_.find(text) == std::string::npos) {
      if (!wait_readable(output_, deadline) || !read_some()) {
        ADD_FAILURE() << "no \"" << text << "\" in the output:\n" << text_;
        return false;
      }
    }
    return true;
  }

  // Whether it has exited.
  bool has_exited() const {
    if (pid_ <= 0) return true;
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }

  // Whether SIGSTOP has stopped it.
  bool stopped() const {
    siginfo_t info{};
    return pid_ > 0 &&
           waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }

  // Returns the exit code, 128 + n after signal n, or -1 and a test failure on timeout. Further
  // calls return the same value.
  int wait() {
    if (pid_ <= 0) return exit_code_;
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (wait_readable(output_, deadline)) {
      if (read_some()) continue;
      exit_code_ = reap(std::exchange(pid_, -1));
      return exit_code_;
    }
    ADD_FAILURE() << "the program does not exit:\n" << text_;
    return -1;
  }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t size = ::read(output_, buffer, sizeof(buffer));
    if (size <= 0) return false;
    text_.append(buffer, static_cast<std::size_t>(size));
    return true;
  }

  pid_t pid_ = -1;  // -1 after wait()
  int exit_code_ = -1;
  int output_ = -1;
  std::string text_;
};

}  // namespace tilewright::testing
