// A program under test: started with its output on a pipe, waited for by events with deadlines.
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
#include <vector>

extern char** environ;

namespace tilewright::testing {

// Far beyond what anything here takes, sanitizers and a busy machine included.
inline constexpr std::chrono::seconds kPatience{60};

// Waits until `fd` is readable or hung up; false when the time is over.
inline bool wait_readable(int fd, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd polled{fd, POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

// A process that is not our child: told to be gone by its pidfd.
class Watched {
 public:
  explicit Watched(pid_t pid) : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
    if (fd_ < 0) throw std::runtime_error("no process " + std::to_string(pid));
  }
  ~Watched() { close(fd_); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  bool ends() const { return wait_readable(fd_, std::chrono::steady_clock::now() + kPatience); }

 private:
  int fd_;
};

class RunningProgram {
 public:
  // Standard output and standard error come together; the working folder is `folder`.
  RunningProgram(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                 const std::filesystem::path& folder) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    output_ = ends[0];
    std::vector<std::string> words = arguments;
    words.insert(words.begin(), program.string());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    const int error =
        posix_spawn(&pid_, program.c_str(), &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) throw std::runtime_error("cannot start " + program.string());
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
  // To one that was waited for: nothing. (Without a process of its own this would be everybody's.)
  void send(int signal_number) const {
    if (pid_ > 0) kill(pid_, signal_number);
  }
  const std::string& output() const { return text_; }

  // Waits until the output holds `text`; fails the test if it ends or time runs out before.
  bool say(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (text_.find(text) == std::string::npos) {
      if (!wait_readable(output_, deadline) || !read_some()) {
        ADD_FAILURE() << "it never said \"" << text << "\" but:\n" << text_;
        return false;
      }
    }
    return true;
  }

  // Whether it has ended by now.
  bool ended() const {
    if (pid_ <= 0) return true;
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }

  // Whether it stands still: by SIGSTOP, until SIGCONT.
  bool stopped() const {
    siginfo_t info{};
    return pid_ > 0 &&
           waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }

  // The exit code, 128 + n after signal n; -1, and a failure, if it does not end. The same again
  // when asked again.
  int wait() {
    if (pid_ <= 0) return exit_code_;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (wait_readable(output_, deadline)) {
      if (read_some()) continue;
      int status = 0;
      waitpid(pid_, &status, 0);
      pid_ = -1;
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return exit_code_;
    }
    ADD_FAILURE() << "it does not end:\n" << text_;
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

  pid_t pid_ = -1;  // once it was waited for
  int exit_code_ = -1;
  int output_ = -1;
  std::string text_;
};

}  // namespace tilewright::testing
