// Starting, ending and killing child processes.
#include "common/process/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "tests/support/hidden_system_call.h"
#include "tests/support/paths.h"

namespace tilewright {
namespace {

constexpr int kTimeoutMs = 30'000;

ChildCommand shell(const std::string& script) {
  ChildCommand command;
  command.program = "/bin/sh";
  command.arguments = {"-c", script};
  command.environment = {"PATH=/usr/bin:/bin"};
  return command;
}

void wait_readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, kTimeoutMs), 1) << "timed out";
}

int wait_for_exit(ChildProcess& process) {
  wait_readable(process.exit_fd());
  return process.poll_exit().value_or(-1);
}

// All output until the pipe closes.
std::string output_of(ChildProcess& process) {
  std::string text;
  char buffer[512];
  for (;;) {
    wait_readable(process.output_fd());
    const ssize_t size = read(process.output_fd(), buffer, sizeof(buffer));
    if (size <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(size));
  }
}

TEST(FindProgram, SearchesAbsoluteDirectoriesInOrder) {
  const testing::TemporaryDirectory folder;
  std::filesystem::create_directory(folder.path() / "sh");  // no program
  const std::string first = folder.path().string();
  EXPECT_EQ(find_program("sh", first + ":/nowhere::/bin:/usr/bin"), "/bin/sh");
  EXPECT_EQ(find_program("no-such-program", "/bin"), std::nullopt);
  EXPECT_EQ(find_program("sh", ""), std::nullopt);
  EXPECT_EQ(find_program("sh", std::filesystem::relative("/bin").string()), std::nullopt);
}

TEST(ChildProcess, ReportsItsExitCode) {
  ChildProcess process =
      ChildProcess::start(shell("read x; exit 7")).or_throw();  // stdin is /dev/null
  EXPECT_EQ(wait_for_exit(process), 7);
  EXPECT_EQ(process.poll_exit(), 7) << "a second call returns the same";
}

TEST(ChildProcess, ReportsItsExitCodeIfTheParentWasStartedWithIgnoredSigchld) {
  const auto old = signal(SIGCHLD, SIG_IGN);
  ChildProcess process = ChildProcess::start(shell("exit 7")).or_throw();
  EXPECT_EQ(wait_for_exit(process), 7);
  signal(SIGCHLD, old);
}

TEST(ChildProcess, ReadsWhatTheParentWrites) {
  ChildCommand command = shell("read line; echo got $line; read line || echo end");
  command.input_pipe = true;
  ChildProcess process = ChildProcess::start(command).or_throw();
  EXPECT_TRUE(process.write_input("secret\n"));
  process.close_input();
  EXPECT_FALSE(process.write_input("more\n"));
  EXPECT_EQ(output_of(process), "got secret\nend\n");
  EXPECT_EQ(wait_for_exit(process), 0);
}

TEST(ChildProcess, SurvivesAWriteToAChildThatHasEnded) {
  ChildCommand command = shell("exit 3");
  command.input_pipe = true;
  ChildProcess process = ChildProcess::start(command).or_throw();
  wait_readable(process.exit_fd());
  process.write_input("secret\n");  // raises no SIGPIPE
  EXPECT_EQ(wait_for_exit(process), 3);
}

// As Linux before 5.3.
TEST(ChildProcess, SeesExitsOnALinuxWithoutPidfds) {
  const pid_t tester = fork();
  if (tester == 0) {
    if (!testing::hide_system_call(SYS_pidfd_open)) _exit(100);
    if (syscall(SYS_pidfd_open, getpid(), 0) != -1 || errno != ENOSYS) _exit(101);
    ChildProcess quick = ChildProcess::start(shell("exit 7")).or_throw();
    ChildProcess slow = ChildProcess::start(shell("exec sleep 60")).or_throw();
    if (wait_for_exit(quick) != 7) _exit(102);
    if (slow.poll_exit()) _exit(103);
    slow.signal_group(SIGTERM);
    if (wait_for_exit(slow) != 128 + SIGTERM) _exit(104);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(tester, &status, 0), tester);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

TEST(ChildProcess, RunsUntilSignalled) {
  ChildProcess process = ChildProcess::start(shell("exec tail -f /dev/null")).or_throw();
  EXPECT_FALSE(process.poll_exit());
  process.signal_group(SIGTERM);
  EXPECT_EQ(wait_for_exit(process), 128 + SIGTERM);
  process.signal_group(SIGTERM);  // no effect
}

TEST(ChildProcess, UsesItsEnvironmentDirectoryAndMergedOutput) {
  const testing::TemporaryDirectory directory;
  ChildCommand command = shell("echo one; echo two >&2; echo $NAME; pwd");
  command.environment.push_back("NAME=value");
  command.working_directory = directory.path();
  ChildProcess process = ChildProcess::start(command).or_throw();
  EXPECT_EQ(output_of(process), "one\ntwo\nvalue\n" + directory.path().string() + "\n");
}

TEST(ChildProcess, RunsOnItsCpusOnly) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  ChildCommand command = shell(
      "while read name list; do case $name in Cpus_allowed_list:) echo $list;; "
      "esac; done < /proc/self/status");
  command.cpus = {last};
  ChildProcess process = ChildProcess::start(command).or_throw();
  EXPECT_EQ(output_of(process), std::to_string(last) + "\n");
}

TEST(ChildProcess, InheritsNeitherBlockedNorIgnoredSignals) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto old = signal(SIGPIPE, SIG_IGN);
  const auto old_size = signal(SIGXFSZ, SIG_IGN);
  ChildProcess process =
      ChildProcess::start(shell("while read name mask; do case $name in SigBlk:|SigIgn:) "
                                "echo $mask;; esac; done < /proc/self/status"))
          .or_throw();
  signal(SIGPIPE, old);
  signal(SIGXFSZ, old_size);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const std::string text = output_of(process);
  EXPECT_EQ(text.substr(0, 17), "0000000000000000\n");
  ASSERT_EQ(text.size(), 34U);
  const std::uint64_t ignored = std::stoull(text.substr(17), nullptr, 16);
  EXPECT_EQ(ignored & (1ULL << (SIGPIPE - 1) | 1ULL << (SIGXFSZ - 1)), 0U);
}

TEST(ChildProcess, ReportsWhyItCannotStart) {
  ChildCommand missing;
  missing.program = "/nonexistent/worker";
  const auto unknown = ChildProcess::start(missing);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "cannot start /nonexistent/worker: No such file or directory");
  ChildCommand nowhere = shell("exit 0");
  nowhere.working_directory = "/nonexistent/directory";
  const auto lost = ChildProcess::start(nowhere);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().message,
            "cannot enter the directory /nonexistent/directory: No such file or directory");
}

TEST(ChildProcess, KillsItsProcessGroupOnExit) {
  ChildProcess process = ChildProcess::start(shell("tail -f /dev/null & echo $!")).or_throw();
  wait_readable(process.output_fd());
  char buffer[32] = {};
  ASSERT_GT(read(process.output_fd(), buffer, sizeof(buffer) - 1), 0);
  const FileDescriptor child(static_cast<int>(syscall(SYS_pidfd_open, std::stoi(buffer), 0)));
  EXPECT_EQ(wait_for_exit(process), 0);
  if (child) wait_readable(child.get());  // invalid if it has already ended
}

TEST(ChildProcess, IsKilledByItsDestructor) {
  FileDescriptor watch;
  {
    ChildProcess process =
        ChildProcess::start(shell("trap '' TERM; exec tail -f /dev/null")).or_throw();
    watch = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process.pid(), 0)));
    ASSERT_TRUE(watch);
  }
  wait_readable(watch.get());
}

// SIGKILL runs no destructor in the parent, so only the kernel can end the child.
TEST(ChildProcess, DoesNotOutliveItsParent) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  const pid_t starter = fork();
  if (starter == 0) {
    auto child = ChildProcess::start(shell("exec tail -f /dev/null"));
    const pid_t pid = child ? child->pid() : -1;
    if (write(writing.get(), &pid, sizeof pid) != sizeof pid) _exit(1);
    while (true) pause();
  }
  writing.reset();
  pid_t child = -1;
  wait_readable(reading.get());
  ASSERT_EQ(read(reading.get(), &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  const FileDescriptor watch(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  ASSERT_TRUE(watch);
  kill(starter, SIGKILL);
  waitpid(starter, nullptr, 0);
  wait_readable(watch.get());
}

TEST(ChildProcess, SeparatesStderrOnRequest) {
  ChildCommand command = shell("echo out; echo err >&2");
  command.separate_error = true;
  ChildProcess process = ChildProcess::start(command).or_throw();
  EXPECT_EQ(wait_for_exit(process), 0);
  EXPECT_EQ(process.read_output(), "out\n");
  EXPECT_EQ(process.read_error(), "err\n");
  EXPECT_EQ(process.read_error(), "");
  EXPECT_EQ(process.error_fd(), -1) << "closed at the end of the stream";
}

TEST(Environment, OverridesTheParentEnvironment) {
  ASSERT_EQ(setenv("TILEWRIGHT_TEST_KEPT", "a=b", 1), 0);
  ASSERT_EQ(setenv("TILEWRIGHT_TEST_REPLACED", "old", 1), 0);
  const auto made = environment_with_overrides(
      {{"TILEWRIGHT_TEST_REPLACED", "new"}, {"TILEWRIGHT_TEST_ADDED", ""}});
  EXPECT_EQ(std::ranges::count(made, "TILEWRIGHT_TEST_KEPT=a=b"), 1);
  EXPECT_EQ(std::ranges::count(made, "TILEWRIGHT_TEST_REPLACED=new"), 1);
  EXPECT_EQ(std::ranges::count(made, "TILEWRIGHT_TEST_REPLACED=old"), 0);
  EXPECT_EQ(std::ranges::count(made, "TILEWRIGHT_TEST_ADDED="), 1);
}

}  // namespace
}  // namespace tilewright
