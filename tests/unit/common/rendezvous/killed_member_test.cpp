// Members as separate processes: what the others observe, and how soon, after one is killed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>

#include "common/rendezvous/client.h"
#include "common/rendezvous/server.h"
#include "tests/support/manual_clock.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/common/rendezvous/coordinator_fixtures.h"
#include "tests/unit/common/rendezvous/forked_process.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tilewright::testing::make_silent_logger;

// A member process: reads the coordinator's port, then writes a line for each epoch it joins, until
// it reads "finish". Gives the epoch up when one of `peers` closes, as its collectives would.
int run_member(int index, int in, int out, std::vector<int> peers) {
  Client::Options options;
  options.coordinator = {"127.0.0.1",
                         static_cast<std::uint16_t>(std::atoi(read_line(in, seconds(30)).c_str()))};
  options.job_uid = kUid;
  options.process = {index, 0};
  options.address = "127.0.0.1:1";
  options.isas = {"avx2"};
  options.heartbeat_interval = milliseconds(50);
  Client client(options, key(), make_silent_logger());
  while (true) {
    const auto joined = client.join(-1, monotonic_now() + seconds(30));
    if (!joined.ok()) return 3;
    write_line(
        out, fmt::format("epoch {} rank {} world {}", joined->epoch, joined->rank, joined->world));
    std::vector<pollfd> fds = {{client.epoch_cancel_token().fd(), POLLIN, 0}, {in, POLLIN, 0}};
    for (const int peer : peers) fds.push_back({peer, POLLIN, 0});
    if (poll(fds.data(), fds.size(), 30000) <= 0) return 4;
    if (fds[1].revents != 0) return client.finish(monotonic_now() + seconds(10)).ok() ? 0 : 5;
    // poll() ignores the negative descriptor of a peer that has closed.
    for (std::size_t i = 0; i < peers.size(); ++i)
      if (fds[2 + i].revents != 0) peers[i] = -1;
  }
}

ForkedProcess fork_member(int index, const std::vector<int>& peers = {}) {
  return ForkedProcess(
      [index, peers](int in, int out) { return run_member(index, in, out, peers); });
}

TEST(KilledMember, SurvivorsFormTheNextEpochAndAReplacementJoins) {
  ForkedProcess second = fork_member(1), third = fork_member(2), successor = fork_member(1);
  ForkedProcess first = fork_member(0, {second.alive_fd(), third.alive_fd()});
  Settings settings;
  settings.min_world = 2;
  settings.max_world = settings.expected = 3;
  testing::ManualClock clock;
  Server::Options options;
  options.clock = &clock;
  auto server = Server::start(options, make_silent_logger()).or_throw();
  server->add_job({kUid, key(), settings}).or_throw();
  const std::string port = fmt::format("{}", server->address().port);
  for (ForkedProcess* member : {&first, &second, &third}) member->tell(port);
  EXPECT_EQ(first.read(), "epoch 1 rank 0 world 3");
  EXPECT_EQ(second.read(), "epoch 1 rank 1 world 3");
  EXPECT_EQ(third.read(), "epoch 1 rank 2 world 3");

  const MonotonicTime killed = monotonic_now();
  second.end(SIGKILL);
  EXPECT_EQ(first.read(), "epoch 2 rank 0 world 2");
  EXPECT_EQ(third.read(), "epoch 2 rank 1 world 2");
  const auto noticed = monotonic_now() - killed;  // milliseconds on an idle machine
  RecordProperty("noticed_microseconds", std::to_string(noticed / std::chrono::microseconds(1)));
  const Snapshot snapshot = *server->snapshot(kUid);
  ASSERT_EQ(snapshot.losses.size(), 1u);
  EXPECT_EQ(snapshot.losses[0].lost.rank, 1);
  EXPECT_EQ(snapshot.losses[0].lost.kind, LossKind::kConnectionClosed);

  // No member trains in this test, so no step boundary ends the epoch. Losing another member ends
  // it.
  successor.tell(port);
  third.end(SIGKILL);
  EXPECT_EQ(first.read(), "epoch 3 rank 0 world 2");
  EXPECT_EQ(successor.read(), "epoch 3 rank 1 world 2");

  first.tell("finish");
  EXPECT_EQ(first.end(), 0);
  successor.tell("finish");
  EXPECT_EQ(successor.end(), 0);
  EXPECT_EQ(server->snapshot(kUid)->loss_count, 2u);
}

}  // namespace
}  // namespace tilewright::rendezvous
