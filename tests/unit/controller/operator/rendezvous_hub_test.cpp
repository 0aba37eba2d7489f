// Tests of RendezvousHub with real rendezvous clients.
#include "controller/operator/rendezvous_hub.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>

#include <condition_variable>
#include <future>
#include <thread>

#include "common/rendezvous/client.h"
#include "tests/support/silent_logger.h"

namespace tilewright::controller {
namespace {

using policy::Membership;
using rendezvous::Assignment;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using tilewright::testing::make_silent_logger;
using ChangeKind = RendezvousHub::ChangeKind;

constexpr const char* kJobUid = "job-1";
constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";
// Timeout of a test that would otherwise hang.
constexpr seconds kTimeout{20};

net::SecretKey key(const char* text = kSecret) { return net::SecretKey::from_bytes(text).value(); }

// The notifications of the hub, in order.
class ChangeLog {
 public:
  void add(const std::string& job_key, ChangeKind kind) {
    const std::lock_guard lock(mutex_);
    changes_.emplace_back(job_key, kind);
    came_.notify_all();
  }
  // Waits for notifications after the first `seen` and marks them as seen.
  bool await(ChangeKind kind, const std::string& job_key = "ns/mrpc") {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, kTimeout, [&] {
      while (seen_ < changes_.size()) {
        if (changes_[seen_++] == std::pair(job_key, kind)) return true;
      }
      return false;
    });
  }
  // Waits for `length` consecutive notifications of one kind after the seen ones.
  bool await_row(ChangeKind kind, int length) {
    std::unique_lock lock(mutex_);
    int row = 0;
    return came_.wait_for(lock, kTimeout, [&] {
      while (seen_ < changes_.size()) {
        row = changes_[seen_++].second == kind ? row + 1 : 0;
        if (row == length) return true;
      }
      return false;
    });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::pair<std::string, ChangeKind>> changes_;
  std::size_t seen_ = 0;
};

class RendezvousHubTest : public ::testing::Test {
 protected:
  Membership membership(int min, int max, int expected) const {
    return {min, max, expected, seconds(3600)};
  }
  Status expect(const Membership& wanted, rendezvous::Epoch last_epoch = 0,
                const std::string& uid = kJobUid, const std::string& job_key = "ns/mrpc") {
    return hub->expect(uid, wanted, [&] {
      ++made;
      RendezvousHub::Job job{job_key, key(), 16, last_epoch, false};
      job.heartbeat_timeout = heartbeat_timeout;
      return job;
    });
  }
  std::unique_ptr<rendezvous::Client> member(int index, const std::string& uid = kJobUid,
                                             Duration heartbeat_interval = milliseconds(10)) {
    rendezvous::Client::Options options;
    options.coordinator = {"127.0.0.1", hub->address().port};
    options.job_uid = uid;
    options.process = {index, 0};
    options.address = fmt::format("127.0.0.1:{}", 40000 + index);
    options.isas = {"avx2"};
    options.heartbeat_interval = heartbeat_interval;
    return std::make_unique<rendezvous::Client>(options, key(), make_silent_logger());
  }
  static std::future<Result<Assignment>> join_later(rendezvous::Client& client) {
    return std::async(std::launch::async,
                      [&client] { return client.join(-1, net::within(kTimeout)); });
  }
  static policy::Worker ended_worker(int index) {
    policy::Worker worker;
    worker.index = index;
    worker.uid = fmt::format("pod-{}", index);
    worker.phase = policy::WorkerPhase::kFailed;
    return worker;
  }
  // Returns `count` clients that are the members of one epoch.
  std::vector<std::unique_ptr<rendezvous::Client>> train(int count) {
    std::vector<std::unique_ptr<rendezvous::Client>> members;
    std::vector<std::future<Result<Assignment>>> joins;
    for (int i = 0; i < count; ++i) {
      members.push_back(member(i));
      joins.push_back(join_later(*members.back()));
    }
    for (auto& join : joins) assignments.push_back(join.get().or_throw());
    return members;
  }
  std::optional<policy::RendezvousView> view(const std::vector<policy::Worker>& workers = {},
                                             MonotonicTime clock = monotonic_now(),
                                             WallTime now = wall_now()) const {
    return hub->view(kJobUid, workers, now, clock);
  }
  // Checks the progress after each notification.
  template <typename Holds>
  bool eventually(Holds holds) {
    while (!holds(view().value())) {
      if (!changes.await(ChangeKind::kHeartbeat)) return false;
    }
    return true;
  }

  ChangeLog changes;
  std::atomic<int> made{0};
  std::optional<Duration> heartbeat_timeout;
  std::vector<Assignment> assignments;
  const std::unique_ptr<RendezvousHub> hub =
      RendezvousHub::start(
          {"127.0.0.1", 0}, [this](const std::string& k, ChangeKind kind) { changes.add(k, kind); },
          make_silent_logger())
          .or_throw();
};

TEST_F(RendezvousHubTest, OpensAJobOnceAndFormsAnEpochOfItsMembers) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  EXPECT_EQ(made, 1);
  const auto members = train(2);
  EXPECT_EQ(assignments[0].world, 2);
  EXPECT_EQ(assignments[0].peers, assignments[1].peers);
  EXPECT_TRUE(changes.await(ChangeKind::kMembership));
  EXPECT_EQ(hub->members(), 2U);
}

TEST_F(RendezvousHubTest, HasNoViewOfAJobThatIsNotOpen) {
  EXPECT_FALSE(view());
  EXPECT_EQ(hub->members(), 0U);
  hub->close(kJobUid);
}

TEST_F(RendezvousHubTest, AssignsOnlyEpochsAfterTheLastOne) {
  ASSERT_TRUE(expect(membership(1, 1, 1), 41));
  // New members of a job that ran before wait for the members of a running epoch. This test only
  // checks that last_epoch is known.
  EXPECT_EQ(view()->latest_epoch, 41U);
}

TEST_F(RendezvousHubTest, ReportsTheProgressOfRankZero) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  const auto members = train(2);
  rendezvous::Progress report;
  report.step = 5;
  report.total_steps = 105;
  report.loss = 0.25;
  report.examples_per_second = 32;
  report.last_checkpoint_step = 4;
  members[0]->report(report);
  ASSERT_TRUE(eventually([](const policy::RendezvousView& p) { return p.progress.step == 5; }));
  const auto shown = view();
  EXPECT_EQ(shown->progress.loss, 0.25);
  EXPECT_EQ(shown->progress.last_checkpoint_step, 4);
  EXPECT_EQ(shown->eta_seconds, 50) << "100 steps of 16 examples at 32 examples/s";
  EXPECT_EQ(shown->world, 2);
  EXPECT_EQ(shown->epoch, assignments[0].epoch);
  ASSERT_EQ(shown->members.size(), 2U);
  EXPECT_EQ(shown->members.at(1).rank, 1);
  EXPECT_FALSE(shown->members.at(1).silent);
}

TEST_F(RendezvousHubTest, DistinguishesHeartbeatsFromMembershipChanges) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  auto members = train(2);
  // The start of the epoch is a membership change. After it only the progress changes.
  ASSERT_TRUE(eventually([](const policy::RendezvousView& p) { return p.world == 2; }));
  EXPECT_TRUE(changes.await_row(ChangeKind::kHeartbeat, 10));
  members.pop_back();
  hub->report_ended(kJobUid, {ended_worker(1)});
  EXPECT_TRUE(changes.await(ChangeKind::kMembership)) << "a member is lost";
}

TEST_F(RendezvousHubTest, KeepsTheRankOfALostMember) {
  const WallTime before = wall_now();
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  auto members = train(2);
  members.pop_back();
  hub->report_ended(kJobUid, {ended_worker(1)});
  ASSERT_TRUE(
      eventually([](const policy::RendezvousView& p) { return !p.lost_processes.empty(); }));
  const auto shown = view();
  EXPECT_FALSE(shown->members.contains(1));
  EXPECT_EQ(shown->lost_processes[0].index, 1);
  EXPECT_EQ(shown->lost_processes[0].rank, 1);
  EXPECT_GE(shown->lost_processes[0].when, before);
  EXPECT_LE(shown->lost_processes[0].when, wall_now());
  ASSERT_EQ(net::wait_ready(members[0]->epoch_cancel_token().fd(), POLLIN, net::within(kTimeout)),
            net::Ready::kYes);
  EXPECT_THAT(members[0]->reason(), HasSubstr("worker 1 was lost (connection closed)"));
}

TEST_F(RendezvousHubTest, DisconnectsMembersWhenItCloses) {
  ASSERT_TRUE(expect(membership(1, 1, 1)));
  const auto members = train(1);
  hub->close(kJobUid);
  EXPECT_FALSE(view());
  EXPECT_EQ(hub->members(), 0U);
  const auto again = members[0]->join(-1, net::within(kTimeout));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(again.error().message, HasSubstr("the job is no longer running"));
}

TEST_F(RendezvousHubTest, FormsAnEpochAsSoonAsFewerAreExpected) {
  ASSERT_TRUE(expect(membership(1, 3, 3)));
  const auto member_0 = member(0);
  const auto member_1 = member(1);
  auto first = join_later(*member_0);
  auto second = join_later(*member_1);
  while (hub->members() < 2) ASSERT_TRUE(changes.await(ChangeKind::kMembership));
  // The timeout is an hour: only the new expectation forms the epoch.
  ASSERT_TRUE(expect(membership(1, 3, 2)));
  EXPECT_EQ(first.get().or_throw().world, 2);
  EXPECT_EQ(second.get().or_throw().world, 2);
  EXPECT_EQ(made, 1);
}

TEST_F(RendezvousHubTest, AdmitsAWorkerWhenTheMaximumGrows) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  auto members = train(2);
  const auto spare = member(2);
  auto third = join_later(*spare);
  while (hub->members() < 3) ASSERT_TRUE(changes.await(ChangeKind::kMembership));
  ASSERT_TRUE(expect(membership(1, 3, 3)));
  const net::Wait timeout = net::within(kTimeout);
  while (!members[0]->reform_requested() && monotonic_now() < timeout.deadline)
    std::this_thread::yield();
  ASSERT_TRUE(members[0]->reform_requested());
  auto first = join_later(*members[0]);
  auto second = join_later(*members[1]);
  EXPECT_EQ(first.get().or_throw().world, 3);
  EXPECT_EQ(second.get().or_throw().world, 3);
  EXPECT_EQ(third.get().or_throw().rank, 2);
}

TEST_F(RendezvousHubTest, FormsAnEpochWithALoweredMinimum) {
  ASSERT_TRUE(expect({2, 2, 2, seconds(0)}));
  const auto only = member(0);
  auto joining = join_later(*only);
  while (hub->members() < 1) ASSERT_TRUE(changes.await(ChangeKind::kMembership));
  ASSERT_TRUE(expect({1, 2, 2, seconds(0)}));
  const auto assignment = joining.get();
  ASSERT_TRUE(assignment) << assignment.error().message;
  EXPECT_EQ(assignment->world, 1);
}

TEST_F(RendezvousHubTest, RejectsInvalidBoundsOfAnOpenJob) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  EXPECT_FALSE(expect(membership(1, rendezvous::kMaxWorld + 1, 2)));
  EXPECT_FALSE(expect(membership(1, rendezvous::kMaxWorld + 1, 2))) << "rejected again";
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  train(2);
}

TEST_F(RendezvousHubTest, KeepsJobsApart) {
  ASSERT_TRUE(expect(membership(1, 1, 1)));
  ASSERT_TRUE(expect(membership(1, 1, 1), 0, "job-2", "ns/other"));
  EXPECT_EQ(made, 2);
  const auto other = member(0, "job-2");
  ASSERT_TRUE(join_later(*other).get());
  EXPECT_TRUE(changes.await(ChangeKind::kMembership, "ns/other"));
  EXPECT_TRUE(view()->members.empty());
  EXPECT_EQ(hub->members(), 1U);
  hub->close("job-2");
  EXPECT_TRUE(view());
}

TEST_F(RendezvousHubTest, ARunningWorkerIsSilentOnlyAfterTheHubHasListenedLongEnough) {
  const seconds timeout(20);
  heartbeat_timeout = timeout;
  const MonotonicTime before = monotonic_now();
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  const MonotonicTime opened = monotonic_now();
  const auto member_0 = member(0);
  auto joining = join_later(*member_0);
  ASSERT_TRUE(changes.await(ChangeKind::kMembership));

  std::vector<policy::Worker> workers(3);
  for (int i = 0; i < 3; ++i) {
    workers[static_cast<std::size_t>(i)].index = i;
    workers[static_cast<std::size_t>(i)].phase = policy::WorkerPhase::kRunning;
  }
  workers[2].phase = policy::WorkerPhase::kPending;
  EXPECT_FALSE(view(workers, before + timeout)->members.contains(1)) << "may still connect";
  const auto late = view(workers, opened + timeout);
  ASSERT_TRUE(late->members.contains(1));
  EXPECT_TRUE(late->members.at(1).silent);
  EXPECT_FALSE(late->members.at(0).silent) << "connected";
  EXPECT_FALSE(late->members.contains(2)) << "not running";

  // A worker that has just started is not silent yet.
  const WallTime now = wall_now();
  workers[1].started = now - timeout + seconds(1);
  EXPECT_FALSE(view(workers, opened + timeout, now)->members.contains(1));
  workers[1].started = now - timeout;
  EXPECT_TRUE(view(workers, opened + timeout, now)->members.contains(1));

  ASSERT_TRUE(expect(membership(1, 2, 1)));  // forms an epoch of member 0
  EXPECT_TRUE(joining.get());
}

TEST_F(RendezvousHubTest, LosesAWorkerAfterTheJobsHeartbeatTimeout) {
  heartbeat_timeout = milliseconds(200);
  ASSERT_TRUE(expect(membership(1, 1, 1)));
  const auto frozen = member(0, kJobUid, std::chrono::hours(1));
  ASSERT_TRUE(join_later(*frozen).get());
  ASSERT_EQ(net::wait_ready(frozen->epoch_cancel_token().fd(), POLLIN, net::within(kTimeout)),
            net::Ready::kYes);
  EXPECT_THAT(frozen->reason(), HasSubstr("no heartbeat for 0.2 s"));
}

TEST_F(RendezvousHubTest, RejectsInvalidSettings) {
  const Status opened = expect(membership(1, rendezvous::kMaxWorld + 1, 1));
  ASSERT_FALSE(opened);
  EXPECT_FALSE(view());
  EXPECT_TRUE(expect(membership(1, 1, 1))) << "can be retried";
}

TEST(RendezvousHub, ReportsAPortInUse) {
  const auto start = [](const net::Address& listen) {
    return RendezvousHub::start(
        listen, [](const auto&, auto) {}, make_silent_logger());
  };
  const auto first = start({"127.0.0.1", 0}).or_throw();
  const auto second = start(first->address());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ExitCode::kUsage);
}

}  // namespace
}  // namespace tilewright::controller
