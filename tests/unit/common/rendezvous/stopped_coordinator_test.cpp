// A coordinator in a process of its own that is stopped for longer than the heartbeat timeout.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "common/rendezvous/client.h"
#include "common/rendezvous/server.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/common/rendezvous/coordinator_fixtures.h"
#include "tests/unit/common/rendezvous/forked_process.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tilewright::testing::make_silent_logger;

constexpr Duration kHeartbeatTimeout = seconds(1);

// The state of the job once each of its two members has sent a message after `now`.
std::string report_after(Server& server, MonotonicTime now) {
  const MonotonicTime deadline = now + seconds(20);
  while (true) {
    const Snapshot snapshot = *server.snapshot(kUid);
    const bool heard = snapshot.members.size() == 2 &&
                       std::ranges::all_of(snapshot.members, [&](const MemberView& member) {
                         return member.connected && member.last_seen > now;
                       });
    if (heard || snapshot.loss_count > 0 ||
        net::wait_ready(server.changes().fd(), POLLIN, deadline) != net::Ready::kYes)
      return fmt::format("epoch {}, {} members, {} losses", snapshot.epoch, snapshot.members.size(),
                         snapshot.loss_count);
    server.take_changed();
  }
}

// Writes its port, then a report for each line it reads.
int run_coordinator(int in, int out) {
  auto server = Server::start({}, make_silent_logger()).or_throw();
  Settings settings;
  settings.min_world = settings.max_world = settings.expected = 2;
  settings.heartbeat_timeout = kHeartbeatTimeout;
  server->add_job({kUid, key(), settings}).or_throw();
  write_line(out, fmt::format("{}", server->address().port));
  while (!read_line(in, seconds(60)).empty())
    write_line(out, report_after(*server, monotonic_now()));
  return 0;
}

// `coordinator_timeout`: a short one makes the members close their connections during the stop.
void stop_and_resume(Duration coordinator_timeout) {
  ForkedProcess coordinator(run_coordinator);
  const auto port = static_cast<std::uint16_t>(std::stoi(coordinator.read()));
  std::vector<std::unique_ptr<Client>> members;
  std::vector<std::future<Result<Assignment>>> joins;
  for (int index = 0; index < 2; ++index) {
    Client::Options options;
    options.coordinator = {"127.0.0.1", port};
    options.job_uid = kUid;
    options.process = {index, 0};
    options.address = "127.0.0.1:1";
    options.isas = {"avx2"};
    options.heartbeat_interval = milliseconds(50);
    options.coordinator_timeout = coordinator_timeout;
    members.push_back(std::make_unique<Client>(options, key(), make_silent_logger()));
    joins.push_back(std::async(std::launch::async, [member = members.back().get()] {
      return member->join(-1, net::within(seconds(20)));
    }));
  }
  for (auto& join : joins) ASSERT_EQ(join.get().or_throw().epoch, 1u);

  coordinator.stop();
  EXPECT_EQ(net::wait_ready(members[0]->epoch_cancel_token().fd(), POLLIN,
                            net::within(kHeartbeatTimeout + milliseconds(500))),
            net::Ready::kTimedOut);
  coordinator.resume();
  coordinator.tell("report");
  EXPECT_EQ(coordinator.read(), "epoch 1, 2 members, 0 losses");
  for (const auto& member : members) EXPECT_FALSE(member->epoch_ended()) << member->reason();
}

TEST(StoppedCoordinator, KeepsTheEpochOfMembersWhoseHeartbeatsWaitInItsSockets) {
  stop_and_resume(seconds(10));
}

TEST(StoppedCoordinator, KeepsTheEpochOfMembersThatReconnectDuringTheStop) {
  stop_and_resume(milliseconds(300));
}

}  // namespace
}  // namespace tilewright::rendezvous
