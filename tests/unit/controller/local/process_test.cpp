// Child processes: how they start, end and are ended.
#include "controller/local/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "controller/local/cpus.h"
#include "tests/support/paths.h"

namespace tilewright::local {
namespace {

constexpr int kPatienceMs = 30'000;

Command shell(const std::string& script) {
  Command command;
  command.program = "/bin/sh";
  command.arguments = {"-c", script};
  command.environment = {"PATH=/usr/bin:/bin"};
  return command;
}

void await(int fd) {
  pollfd polled{fd, POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, kPatienceMs), 1) << "nothing happened";
}

int end_of(Process& process) {
  await(process.exit_fd());
  return process.poll_exit().value_or(-1);
}

// All that comes until the pipe is closed.
std::string output_of(Process& process) {
  std::string text;
  char buffer[512];
  for (;;) {
    await(process.output_fd());
    const ssize_t size = read(process.output_fd(), buffer, sizeof(buffer));
    if (size <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(size));
  }
}

TEST(Process, TellsItsExitCodeOnceItHasEnded) {
  Process process = Process::start(shell("read x; exit 7")).or_throw();  // stdin is /dev/null
  EXPECT_EQ(end_of(process), 7);
  EXPECT_EQ(process.poll_exit(), 7) << "and again";
}

TEST(Process, RunsUntilItEnds) {
  Process process = Process::start(shell("exec tail -f /dev/null")).or_throw();
  EXPECT_FALSE(process.poll_exit());
  process.signal_group(SIGTERM);
  EXPECT_EQ(end_of(process), 128 + SIGTERM);
  process.signal_group(SIGTERM);  // to nobody
}

TEST(Process, HasItsEnvironmentFolderAndOneOrderedOutput) {
  const testing::TemporaryDirectory folder;
  Command command = shell("echo one; echo two >&2; echo $NAME; pwd");
  command.environment.push_back("NAME=value");
  command.working_directory = folder.path();
  Process process = Process::start(command).or_throw();
  EXPECT_EQ(output_of(process), "one\ntwo\nvalue\n" + folder.path().string() + "\n");
}

TEST(Process, RunsOnItsCpusOnly) {
  const std::vector<int> cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  Command command = shell(
      "while read name list; do case $name in Cpus_allowed_list:) echo $list;; "
      "esac; done < /proc/self/status");
  command.cpus = {cpus.back()};
  Process process = Process::start(command).or_throw();
  EXPECT_EQ(output_of(process), std::to_string(cpus.back()) + "\n");
}

TEST(Process, InheritsNoBlockedSignalAndNoIgnoredPipe) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto old = signal(SIGPIPE, SIG_IGN);
  Process process = Process::start(shell("while read name mask; do case $name in SigBlk:|SigIgn:) "
                                         "echo $mask;; esac; done < /proc/self/status"))
                        .or_throw();
  signal(SIGPIPE, old);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const std::string text = output_of(process);
  EXPECT_EQ(text.substr(0, 17), "0000000000000000\n");
  ASSERT_EQ(text.size(), 34U);
  const std::uint64_t ignored = std::stoull(text.substr(17), nullptr, 16);
  EXPECT_EQ(ignored & (1ULL << (SIGPIPE - 1)), 0U);
}

TEST(Process, SaysWhyItCannotStart) {
  Command missing;
  missing.program = "/nonexistent/worker";
  const auto unknown = Process::start(missing);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "cannot start /nonexistent/worker: No such file or directory");
  Command nowhere = shell("exit 0");
  nowhere.working_directory = "/nonexistent/folder";
  const auto lost = Process::start(nowhere);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().message,
            "cannot enter the folder /nonexistent/folder: No such file or directory");
}

TEST(Process, TakesItsGroupAlongWhenItEnds) {
  Process process = Process::start(shell("tail -f /dev/null & echo $!")).or_throw();
  await(process.output_fd());
  char buffer[32] = {};
  ASSERT_GT(read(process.output_fd(), buffer, sizeof(buffer) - 1), 0);
  const Descriptor child(static_cast<int>(syscall(SYS_pidfd_open, std::stoi(buffer), 0)));
  EXPECT_EQ(end_of(process), 0);
  if (child) await(child.get());  // else it is gone already
}

TEST(Process, EndsWithItsObject) {
  Descriptor watch;
  {
    Process process = Process::start(shell("trap '' TERM; exec tail -f /dev/null")).or_throw();
    watch = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, process.pid(), 0)));
    ASSERT_TRUE(watch);
  }
  await(watch.get());
}

TEST(Cpus, AreSharedOutInNeighbouringParts) {
  const std::vector<int> eight = {0, 1, 2, 3, 8, 9, 10, 11};
  EXPECT_EQ(share_of_cpus(eight, 0, 2), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(share_of_cpus(eight, 1, 2), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(share_of_cpus(eight, 0, 3), (std::vector<int>{0, 1}));
  EXPECT_EQ(share_of_cpus(eight, 1, 3), (std::vector<int>{2, 3, 8}));
  EXPECT_EQ(share_of_cpus(eight, 2, 3), (std::vector<int>{9, 10, 11}));
  EXPECT_EQ(share_of_cpus(eight, 5, 3), share_of_cpus(eight, 2, 3)) << "scaled up since";
  EXPECT_TRUE(share_of_cpus({4}, 0, 2).empty()) << "fewer than workers: shared, unbound";
  EXPECT_TRUE(share_of_cpus({}, 0, 1).empty());
}

}  // namespace
}  // namespace tilewright::local
