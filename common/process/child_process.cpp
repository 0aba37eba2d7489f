#include "common/process/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

#include "common/base/exit_codes.h"
#include "common/host/binding.h"

namespace tilewright {
namespace {

constexpr std::size_t kPipeBytes = 64 << 10;

// The child writes it to a pipe if it fails before exec. A successful exec closes the pipe.
struct StartFailure {
  enum class Stage : int { kDirectory, kAffinity, kExec } stage;
  int error;
};

Error start_error(const std::string& what, int error) {
  return {ExitCode::kInternal, fmt::format("{}: {}", what, std::strerror(error))};
}

Result<std::array<FileDescriptor, 2>> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return start_error("cannot create a pipe", errno);
  return std::array<FileDescriptor, 2>{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<char*> null_terminated(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// Everything the child needs between fork and exec. Prepared before the fork, because afterwards
// only async-signal-safe calls are allowed, which excludes memory allocation.
struct ChildSetup {
  const char* program;
  const char* directory;
  char* const* arguments;
  char* const* environment;
  int input;
  int output;
  int error;
  int failure;
  pid_t parent;
  const host::BitMask* cpus;  // nullptr: those of the parent
};

[[noreturn]] void exec_child(const ChildSetup& setup) {
  const auto fail = [&](StartFailure::Stage stage) {
    const StartFailure failure{stage, errno};
    [[maybe_unused]] const auto ignored = write(setup.failure, &failure, sizeof(failure));
    _exit(127);
  };
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If the parent died before prctl took effect, no signal will arrive.
  if (getppid() != setup.parent) _exit(127);
  dup2(setup.input, STDIN_FILENO);
  dup2(setup.output, STDOUT_FILENO);
  dup2(setup.error, STDERR_FILENO);
  // Not bind_thread(), which allocates memory.
  if (setup.cpus != nullptr &&
      syscall(SYS_sched_setaffinity, 0, setup.cpus->bytes(), setup.cpus->data()) != 0) {
    fail(StartFailure::Stage::kAffinity);
  }
  if (setup.directory[0] != '\0' && chdir(setup.directory) != 0) {
    fail(StartFailure::Stage::kDirectory);
  }
  // The parent blocks the signals it reads from a signalfd and ignores others; exec preserves both.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);
  execve(setup.program, setup.arguments, setup.environment);
  fail(StartFailure::Stage::kExec);
  _exit(127);
}

// A descriptor that is readable once the child has ended. Linux before 5.3 has no pidfd_open();
// there a thread waits.
FileDescriptor watch_exit(pid_t pid) {
  // Through syscall(): glibc 2.36 declares pidfd_open without C linkage.
  FileDescriptor pid_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pid_fd || errno != ENOSYS) return pid_fd;
  FileDescriptor ended(eventfd(0, EFD_CLOEXEC));
  const int signal = ended ? fcntl(ended.get(), F_DUPFD_CLOEXEC, 0) : -1;
  if (signal < 0) return {};
  std::thread([pid, owner = FileDescriptor(signal)] {
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    eventfd_write(owner.get(), 1);
  }).detach();
  return ended;
}

std::string describe(const StartFailure& failure, const ChildCommand& command) {
  switch (failure.stage) {
    case StartFailure::Stage::kDirectory:
      return fmt::format("cannot enter the directory {}: {}", command.working_directory.string(),
                         std::strerror(failure.error));
    case StartFailure::Stage::kAffinity:
      return fmt::format("cannot bind {} to its CPUs: {}", command.program.string(),
                         std::strerror(failure.error));
    case StartFailure::Stage::kExec:
      break;
  }
  return fmt::format("cannot start {}: {}", command.program.string(), std::strerror(failure.error));
}

}  // namespace

bool is_program(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::optional<std::filesystem::path> find_program(std::string_view name,
                                                  std::string_view search_path) {
  while (!search_path.empty()) {
    const std::filesystem::path directory = search_path.substr(0, search_path.find(':'));
    search_path.remove_prefix(std::min(directory.native().size() + 1, search_path.size()));
    if (directory.is_absolute() && is_program(directory / name)) return directory / name;
  }
  return std::nullopt;
}

std::vector<std::string> environment_with_overrides(
    const std::map<std::string, std::string>& over) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!over.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : over) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

Result<ChildProcess> ChildProcess::start(const ChildCommand& command) {
  // With SIG_IGN, perhaps inherited, the kernel would drop the exit codes of children.
  signal(SIGCHLD, SIG_DFL);
  auto output = make_pipe();
  if (!output) return output.error();
  std::array<FileDescriptor, 2> error;
  if (command.separate_error) {
    auto made = make_pipe();
    if (!made) return made.error();
    error = std::move(*made);
  }
  auto failure = make_pipe();
  if (!failure) return failure.error();
  std::array<FileDescriptor, 2> input;  // read end, write end
  if (command.input_pipe) {
    auto made = make_pipe();
    if (!made) return made.error();
    input = std::move(*made);
  } else {
    input[0] = FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!input[0]) return start_error("cannot open /dev/null", errno);
  }

  std::vector<std::string> arguments = command.arguments;
  arguments.insert(arguments.begin(), command.program.string());
  std::vector<std::string> environment = command.environment;
  const std::vector<char*> argument_pointers = null_terminated(arguments);
  const std::vector<char*> environment_pointers = null_terminated(environment);
  const std::string directory = command.working_directory.string();
  ChildSetup setup{};
  setup.program = command.program.c_str();
  setup.directory = directory.c_str();
  setup.arguments = argument_pointers.data();
  setup.environment = environment_pointers.data();
  setup.input = input[0].get();
  setup.output = (*output)[1].get();
  setup.error = command.separate_error ? error[1].get() : setup.output;
  setup.failure = (*failure)[1].get();
  setup.parent = getpid();
  const host::BitMask cpus(command.cpus);
  if (!command.cpus.empty()) setup.cpus = &cpus;

  const pid_t pid = fork();
  if (pid < 0) return start_error("cannot fork", errno);
  if (pid == 0) exec_child(setup);
  // Parent and child both set the group, so that it exists before either continues.
  setpgid(pid, pid);
  (*output)[1].reset();
  error[1].reset();
  (*failure)[1].reset();

  FileDescriptor pid_fd = watch_exit(pid);
  const int pid_fd_error = errno;
  StartFailure start_failure{};
  ssize_t size = 0;
  do {
    size = read((*failure)[0].get(), &start_failure, sizeof(start_failure));
  } while (size < 0 && errno == EINTR);
  if (size == static_cast<ssize_t>(sizeof(start_failure)) || !pid_fd) {
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    if (!pid_fd) return start_error("cannot watch a child process", pid_fd_error);
    return Error{ExitCode::kUsage, describe(start_failure, command)};
  }
  fcntl((*output)[0].get(), F_SETFL, O_NONBLOCK);
  if (error[0]) fcntl(error[0].get(), F_SETFL, O_NONBLOCK);
  if (input[1]) fcntl(input[1].get(), F_SETFL, O_NONBLOCK);
  return ChildProcess(pid, std::move(pid_fd), std::move(input), std::move((*output)[0]),
                      std::move(error[0]));
}

ChildProcess::~ChildProcess() {
  if (!pid_fd_ || exit_code_) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::signal_group(int signal_number) const {
  // After reaping, the process id may belong to another process.
  if (!exit_code_) kill(-pid_, signal_number);
}

bool ChildProcess::write_input(std::string_view text) {
  return input_[1] &&
         write(input_[1].get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::string ChildProcess::read_from(FileDescriptor& pipe) {
  std::array<char, kPipeBytes> buffer;
  if (!pipe) return "";
  const ssize_t got = read(pipe.get(), buffer.data(), buffer.size());
  if (got > 0) return {buffer.data(), static_cast<std::size_t>(got)};
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) pipe.reset();
  return "";
}

std::optional<int> ChildProcess::poll_exit() {
  if (exit_code_) return exit_code_;
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid_);
  if (waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  // While the group leader is a zombie, its process group id cannot be reused.
  kill(-pid_, SIGKILL);
  waitid(P_PID, id, &info, WEXITED | WNOHANG);
  exit_code_ = info.si_code == CLD_EXITED ? info.si_status : kSignalExitCodeBase + info.si_status;
  return exit_code_;
}

}  // namespace tilewright
