// Members as processes of their own, one of which is killed: what the others see, and how soon.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/file_descriptor.h"
#include "common/rendezvous/client.h"
#include "common/rendezvous/server.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kUid = "job-1";
constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

net::SecretKey key() { return net::SecretKey::from_bytes(kSecret).value(); }

bool write_line(int fd, const std::string& line) {
  return write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

// A line, or "" when none comes in time.
std::string read_line(int fd, Duration within) {
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

// The life of a member: reads the coordinator's port, then says each epoch it gets into, until it
// is told to finish.
int live(int index, int in, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Client::Options options;
  options.coordinator = {"127.0.0.1",
                         static_cast<std::uint16_t>(std::atoi(read_line(in, seconds(30)).c_str()))};
  options.job_uid = kUid;
  options.seat = {index, 0};
  options.address = "127.0.0.1:1";
  options.isa = "avx2";
  options.heartbeat_interval = milliseconds(50);
  Client client(options, key(), make_silent_logger());
  while (true) {
    const auto joined = client.join(-1, monotonic_now() + seconds(30));
    if (!joined.ok()) return 3;
    write_line(out, fmt::format("epoch {} rank {} world {}\n", joined->epoch, joined->rank,
                                joined->world));
    pollfd fds[2] = {{client.epoch_bell().fd(), POLLIN, 0}, {in, POLLIN, 0}};
    if (poll(fds, 2, 30000) <= 0) return 4;
    if (fds[1].revents != 0) return client.finish(monotonic_now() + seconds(10)).ok() ? 0 : 5;
  }
}

class MemberProcess {
 public:
  // Made before the server: a process with threads had better not fork.
  explicit MemberProcess(int index) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    pid_ = fork();
    if (pid_ == 0) _exit(live(index, to[0], from[1]));
    close(to[0]);
    close(from[1]);
    in_ = FileDescriptor(to[1]);
    out_ = FileDescriptor(from[0]);
  }
  ~MemberProcess() {
    if (pid_ > 0) end(SIGKILL);
  }
  void tell(const std::string& line) { write_line(in_.get(), line); }
  std::string says() { return read_line(out_.get(), seconds(20)); }
  int end(int signal = 0) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  FileDescriptor in_, out_;
};

TEST(KilledMember, SurvivorsAreInTheNextEpochAtOnceAndASuccessorIsTakenIn) {
  MemberProcess first(0), second(1), third(2), successor(1);
  Settings settings;
  settings.min_world = 2;
  settings.max_world = settings.expected = 3;
  settings.last_call = milliseconds(100);
  auto server = Server::start({}, make_silent_logger()).or_throw();
  server->add_job({kUid, key(), settings}).or_throw();
  const std::string port = fmt::format("{}\n", server->address().port);
  for (MemberProcess* member : {&first, &second, &third}) member->tell(port);
  EXPECT_EQ(first.says(), "epoch 1 rank 0 world 3");
  EXPECT_EQ(second.says(), "epoch 1 rank 1 world 3");
  EXPECT_EQ(third.says(), "epoch 1 rank 2 world 3");

  const MonotonicTime killed = monotonic_now();
  second.end(SIGKILL);
  EXPECT_EQ(first.says(), "epoch 2 rank 0 world 2");
  EXPECT_EQ(third.says(), "epoch 2 rank 1 world 2");
  // The promise is below a second (milliseconds, seen alone); the rest is left to a busy machine.
  const auto noticed = monotonic_now() - killed;
  EXPECT_LT(noticed, seconds(10));
  RecordProperty("noticed_microseconds", std::to_string(noticed / std::chrono::microseconds(1)));
  const Snapshot snapshot = *server->snapshot(kUid);
  ASSERT_EQ(snapshot.losses.size(), 1u);
  EXPECT_EQ(snapshot.losses[0].lost.epoch, 1u);
  EXPECT_EQ(snapshot.losses[0].lost.rank, 1);
  EXPECT_EQ(snapshot.losses[0].lost.kind, LossKind::kConnectionClosed);

  // Where nobody trains there is no boundary to come to: the loss of another ends the epoch.
  successor.tell(port);
  third.end(SIGKILL);
  EXPECT_EQ(first.says(), "epoch 3 rank 0 world 2");
  EXPECT_EQ(successor.says(), "epoch 3 rank 1 world 2");

  first.tell("finish\n");
  EXPECT_EQ(first.end(), 0);
  successor.tell("finish\n");
  EXPECT_EQ(successor.end(), 0);
  EXPECT_EQ(server->snapshot(kUid)->number_of_losses, 2u);
}

}  // namespace
}  // namespace tilewright::rendezvous
