// A coordinator in a process of its own that is stopped for longer than the heartbeat timeout,
// alone or with its members.
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

constexpr Duration kHeartbeatTimeout = seconds(2);
// Longer than the heartbeat timeout, by less than the coordinator may be late without a stall.
constexpr Duration kStop = kHeartbeatTimeout + milliseconds(500);

// The state of the job once each of its two members has sent a message after `now`.
std::string report_after(Server& server, MonotonicTime now) {
  const MonotonicTime deadline = now + seconds(60);
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

// The two members of the job, which have joined.
class Members {
 public:
  // `coordinator_timeout`: a short one makes them close their connections while the coordinator is
  // stopped.
  explicit Members(const std::string& port, Duration coordinator_timeout = seconds(60)) {
    std::vector<std::future<Result<Assignment>>> joins;
    for (int index = 0; index < 2; ++index) {
      Client::Options options;
      options.coordinator = {"127.0.0.1", static_cast<std::uint16_t>(std::stoi(port))};
      options.job_uid = kUid;
      options.process = {index, 0};
      options.address = "127.0.0.1:1";
      options.isas = {"avx2"};
      options.heartbeat_interval = milliseconds(50);
      options.coordinator_timeout = coordinator_timeout;
      members_.push_back(std::make_unique<Client>(options, key(), make_silent_logger()));
      joins.push_back(std::async(std::launch::async, [member = members_.back().get()] {
        return member->join(-1, net::within(seconds(60)));
      }));
    }
    for (auto& join : joins) EXPECT_EQ(join.get().or_throw().epoch, 1u);
  }
  const Client& operator[](std::size_t index) const { return *members_.at(index); }

 private:
  std::vector<std::unique_ptr<Client>> members_;
};

void stop_coordinator(Duration coordinator_timeout) {
  ForkedProcess coordinator(run_coordinator);
  const Members members(coordinator.read(), coordinator_timeout);
  coordinator.stop();
  EXPECT_EQ(net::wait_ready(members[0].epoch_cancel_token().fd(), POLLIN, net::within(kStop)),
            net::Ready::kTimedOut);
  coordinator.resume();
  coordinator.tell("report");
  EXPECT_EQ(coordinator.read(), "epoch 1, 2 members, 0 losses");
  for (const std::size_t i : {0, 1}) EXPECT_FALSE(members[i].epoch_ended()) << members[i].reason();
}

TEST(StoppedCoordinator, KeepsTheEpochOfMembersWhoseHeartbeatsWaitInItsSockets) {
  stop_coordinator(seconds(60));
}

TEST(StoppedCoordinator, KeepsTheEpochOfMembersThatReconnectDuringTheStop) {
  stop_coordinator(milliseconds(300));
}

// As a virtual machine that is paused: no heartbeat waits when the coordinator runs again.
TEST(StoppedCoordinator, KeepsTheEpochOfMembersThatWereStoppedToo) {
  ForkedProcess coordinator(run_coordinator);
  ForkedProcess others([](int in, int out) {
    const Members members(read_line(in, seconds(60)));
    write_line(out, "joined");
    read_line(in, seconds(60));
    return 0;
  });
  others.tell(coordinator.read());
  ASSERT_EQ(others.read(), "joined");
  others.stop();
  coordinator.stop();
  net::sleep_until(net::within(kStop));
  coordinator.resume();
  coordinator.tell("report");
  others.resume();
  EXPECT_EQ(coordinator.read(), "epoch 1, 2 members, 0 losses");
  others.tell("end");
}

}  // namespace
}  // namespace tilewright::rendezvous
