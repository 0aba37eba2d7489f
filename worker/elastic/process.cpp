#include "worker/elastic/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "worker/elastic/signals.h"

namespace tilewright::elastic {
namespace {

constexpr std::size_t kPipeBytes = 64 << 10;

struct Pipe {
  net::FileDescriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Failure(ExitCode::kInternal, fmt::format("pipe2: {}", std::strerror(errno)));
  return {net::FileDescriptor(ends[0]), net::FileDescriptor(ends[1])};
}

// This process's variables with those of the spec over them, as NAME=VALUE.
std::vector<std::string> merged_environment(const std::map<std::string, std::string>& over) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!over.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : over) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string LinePrefixer::feed(std::string_view bytes) {
  rest_.append(bytes);
  std::string lines;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = rest_.find('\n', begin);
    if (end == std::string::npos && rest_.size() - begin < kMaxLine) break;
    const std::size_t size = std::min(end == std::string::npos ? kMaxLine : end - begin, kMaxLine);
    lines.append(prefix_).append(rest_, begin, size).append("\n");
    begin += size;
    if (begin == end) ++begin;
  }
  rest_.erase(0, begin);
  return lines;
}

std::string LinePrefixer::flush() { return rest_.empty() ? "" : feed("\n"); }

Process::Process(const ProcessSpec& spec) {
  TW_CHECK(!spec.command.empty(), "a process without a program");
  Pipe output = make_pipe();
  Pipe error = make_pipe();
  Pipe trouble = make_pipe();  // closed by exec, or holds the errno of its failure
  // All that allocates comes before the fork: this process may have other threads.
  std::vector<std::string> words = spec.command;
  std::vector<std::string> variables = merged_environment(spec.environment);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw Failure(ExitCode::kInternal, fmt::format("fork: {}", std::strerror(errno)));
  if (pid_ == 0) {
    setpgid(0, 0);  // the terminal's Ctrl-C reaches it only through us
    die_with_parent(parent);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(output.write.get(), STDOUT_FILENO);
    dup2(error.write.get(), STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    const int reason = errno;
    [[maybe_unused]] const ssize_t told = write(trouble.write.get(), &reason, sizeof reason);
    _exit(127);
  }
  setpgid(pid_, pid_);  // whoever is first
  trouble.write.reset();
  int reason = 0;
  if (read(trouble.read.get(), &reason, sizeof reason) == sizeof reason) {
    waitpid(pid_, nullptr, 0);
    throw Failure(ExitCode::kUsage,
                  fmt::format("{} cannot be run: {}", spec.command[0], std::strerror(reason)));
  }
  pidfd_ = net::FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (pidfd_.get() < 0) {
    const int failure = errno;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    throw Failure(ExitCode::kInternal, fmt::format("pidfd_open: {}", std::strerror(failure)));
  }
  for (Pipe* pipe : {&output, &error}) fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
  output_ = std::move(output.read);
  error_ = std::move(error.read);
}

Process::~Process() {
  if (exit_code_) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const {
  if (!exit_code_) kill(-pid_, number);
}

std::string Process::read_from(net::FileDescriptor& pipe) {
  std::array<char, kPipeBytes> buffer;
  if (pipe.get() < 0) return "";
  const ssize_t got = read(pipe.get(), buffer.data(), buffer.size());
  if (got > 0) return {buffer.data(), static_cast<std::size_t>(got)};
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) pipe.reset();
  return "";
}

std::optional<int> Process::exit_code() {
  if (exit_code_) return exit_code_;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  // What it left behind goes while its number, which is theirs too, cannot belong to anybody else.
  kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

}  // namespace tilewright::elastic
