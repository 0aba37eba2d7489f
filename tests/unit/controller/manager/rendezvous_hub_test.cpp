// Real members of jobs at the controller's port: what the hub lets in, tells and says of them.
#include "controller/manager/rendezvous_hub.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <condition_variable>
#include <future>
#include <thread>

#include "common/rendezvous/client.h"

namespace tilewright::manager {
namespace {

using reconcile::Membership;
using rendezvous::Assignment;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using News = RendezvousHub::News;

constexpr const char* kUid = "job-1";
constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";
// Only ends a test that would otherwise hang.
constexpr seconds kPatience{20};

net::SecretKey key(const char* text = kSecret) { return net::SecretKey::from_bytes(text).value(); }

// What the hub has told, in order.
class Told {
 public:
  void add(const std::string& job_key, News news) {
    const std::lock_guard lock(mutex_);
    news_.emplace_back(job_key, news);
    came_.notify_all();
  }
  // Waits for news after the first `seen`, and counts them as seen.
  bool await(News news, const std::string& job_key = "ns/mrpc") {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, kPatience, [&] {
      while (seen_ < news_.size()) {
        if (news_[seen_++] == std::pair(job_key, news)) return true;
      }
      return false;
    });
  }
  // Waits until so many of a kind have come in a row, after what was seen.
  bool await_row(News news, int length) {
    std::unique_lock lock(mutex_);
    int row = 0;
    return came_.wait_for(lock, kPatience, [&] {
      while (seen_ < news_.size()) {
        row = news_[seen_++].second == news ? row + 1 : 0;
        if (row == length) return true;
      }
      return false;
    });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::pair<std::string, News>> news_;
  std::size_t seen_ = 0;
};

class RendezvousHubTest : public ::testing::Test {
 protected:
  Membership membership(int min, int max, int expected) const {
    return {min, max, expected, seconds(3600)};
  }
  Status expect(const Membership& wanted, rendezvous::Epoch floor = 0,
                const std::string& uid = kUid, const std::string& job_key = "ns/mrpc") {
    return hub->expect(uid, wanted, [&] {
      ++made;
      return RendezvousHub::Job{job_key, key(), 16, floor, false};
    });
  }
  std::unique_ptr<rendezvous::Client> member(int index, const std::string& uid = kUid) {
    rendezvous::Client::Options options;
    options.coordinator = {"127.0.0.1", hub->address().port};
    options.job_uid = uid;
    options.seat = {index, 0};
    options.address = fmt::format("127.0.0.1:{}", 40000 + index);
    options.isa = "avx2";
    options.heartbeat_interval = milliseconds(10);
    return std::make_unique<rendezvous::Client>(options, key(), make_silent_logger());
  }
  static std::future<Result<Assignment>> join_later(rendezvous::Client& client) {
    return std::async(std::launch::async,
                      [&client] { return client.join(-1, net::within(kPatience)); });
  }
  // Members in one epoch.
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
  std::optional<reconcile::Progress> progress(const std::vector<reconcile::Worker>& workers = {},
                                              MonotonicTime clock = monotonic_now(),
                                              WallTime now = wall_now()) const {
    return hub->progress(kUid, workers, now, clock);
  }
  // Looks whenever there is news.
  template <typename Holds>
  bool eventually(Holds holds) {
    while (!holds(progress().value())) {
      if (!told.await(News::kHeartbeat)) return false;
    }
    return true;
  }

  Told told;
  std::atomic<int> made{0};
  std::vector<Assignment> assignments;
  const std::unique_ptr<RendezvousHub> hub =
      RendezvousHub::start(
          {"127.0.0.1", 0}, [this](const std::string& k, News news) { told.add(k, news); },
          make_silent_logger())
          .or_throw();
};

TEST_F(RendezvousHubTest, OpensAJobOnceAndLetsItsMembersFindEachOther) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  EXPECT_EQ(made, 1);
  const auto members = train(2);
  EXPECT_EQ(assignments[0].world, 2);
  EXPECT_EQ(assignments[0].peers, assignments[1].peers);
  EXPECT_TRUE(told.await(News::kMembership));
  EXPECT_EQ(hub->members(), 2U);
}

TEST_F(RendezvousHubTest, KnowsNothingOfAJobThatIsNotOpen) {
  EXPECT_FALSE(progress());
  EXPECT_EQ(hub->members(), 0U);
  hub->close(kUid);
}

TEST_F(RendezvousHubTest, HandsOutNoEpochUpToTheFloor) {
  ASSERT_TRUE(expect(membership(1, 1, 1), 41));
  // Fresh members of a job that ran before wait for those of a running epoch; a claim of one is
  // what ends that, so here it is enough that the floor is known.
  EXPECT_EQ(progress()->latest_epoch, 41U);
}

TEST_F(RendezvousHubTest, SaysWhatRankZeroReports) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  const auto members = train(2);
  rendezvous::Progress report;
  report.step = 5;
  report.total_steps = 105;
  report.loss = 0.25;
  report.examples_per_second = 32;
  report.last_checkpoint_step = 4;
  members[0]->report(report);
  ASSERT_TRUE(eventually([](const reconcile::Progress& p) { return p.step == 5; }));
  const auto shown = progress();
  EXPECT_EQ(shown->loss, 0.25);
  EXPECT_EQ(shown->last_checkpoint_step, 4);
  EXPECT_EQ(shown->eta_seconds, 50) << "100 steps of 16 examples at 32 a second";
  EXPECT_EQ(shown->world, 2);
  EXPECT_EQ(shown->rendezvous_epoch, assignments[0].epoch);
  ASSERT_EQ(shown->members.size(), 2U);
  EXPECT_EQ(shown->members.at(1).rank, 1);
  EXPECT_FALSE(shown->members.at(1).silent);
}

TEST_F(RendezvousHubTest, TellsHeartbeatsFromChangesOfMembership) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  auto members = train(2);
  // The epoch's beginning is news of membership, told in its own time; from then on nothing changes
  // but progress.
  ASSERT_TRUE(eventually([](const reconcile::Progress& p) { return p.world == 2; }));
  EXPECT_TRUE(told.await_row(News::kHeartbeat, 10));
  members.pop_back();
  EXPECT_TRUE(told.await(News::kMembership)) << "a member is lost";
}

TEST_F(RendezvousHubTest, RemembersTheRankOfAMemberThatIsGone) {
  const WallTime before = wall_now();
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  auto members = train(2);
  members.pop_back();
  ASSERT_TRUE(eventually([](const reconcile::Progress& p) { return !p.losses.empty(); }));
  const auto shown = progress();
  EXPECT_FALSE(shown->members.contains(1));
  EXPECT_EQ(shown->losses[0].index, 1);
  EXPECT_EQ(shown->losses[0].rank, 1);
  EXPECT_GE(shown->losses[0].when, before);
  EXPECT_LE(shown->losses[0].when, wall_now());
}

TEST_F(RendezvousHubTest, SendsMembersAwayWhenItCloses) {
  ASSERT_TRUE(expect(membership(1, 1, 1)));
  const auto members = train(1);
  hub->close(kUid);
  EXPECT_FALSE(progress());
  EXPECT_EQ(hub->members(), 0U);
  const auto again = members[0]->join(-1, net::within(kPatience));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ExitCode::kUnsupported);
  EXPECT_THAT(again.error().message, HasSubstr("the job is not running any more"));
}

TEST_F(RendezvousHubTest, FormsAnEpochAsSoonAsFewerAreExpected) {
  ASSERT_TRUE(expect(membership(1, 3, 3)));
  const auto member_0 = member(0);
  const auto member_1 = member(1);
  auto first = join_later(*member_0);
  auto second = join_later(*member_1);
  while (hub->members() < 2) ASSERT_TRUE(told.await(News::kMembership));
  // Patience is an hour: only the new expectation lets them go.
  ASSERT_TRUE(expect(membership(1, 3, 2)));
  EXPECT_EQ(first.get().or_throw().world, 2);
  EXPECT_EQ(second.get().or_throw().world, 2);
  EXPECT_EQ(made, 1);
}

TEST_F(RendezvousHubTest, TakesInTheWorkerForWhichAHigherMaximumMakesRoom) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  auto members = train(2);
  const auto spare = member(2);
  auto third = join_later(*spare);
  while (hub->members() < 3) ASSERT_TRUE(told.await(News::kMembership));
  ASSERT_TRUE(expect(membership(1, 3, 3)));
  const net::Wait patience = net::within(kPatience);
  while (!members[0]->reform_asked() && monotonic_now() < patience.deadline)
    std::this_thread::yield();
  ASSERT_TRUE(members[0]->reform_asked());
  auto first = join_later(*members[0]);
  auto second = join_later(*members[1]);
  EXPECT_EQ(first.get().or_throw().world, 3);
  EXPECT_EQ(second.get().or_throw().world, 3);
  EXPECT_EQ(third.get().or_throw().rank, 2);
}

TEST_F(RendezvousHubTest, FormsAnEpochWithAsFewAsALowerMinimumAllows) {
  ASSERT_TRUE(expect({2, 2, 2, seconds(0)}));
  const auto only = member(0);
  auto joining = join_later(*only);
  while (hub->members() < 1) ASSERT_TRUE(told.await(News::kMembership));
  ASSERT_TRUE(expect({1, 2, 2, seconds(0)}));
  const auto assignment = joining.get();
  ASSERT_TRUE(assignment) << assignment.error().message;
  EXPECT_EQ(assignment->world, 1);
}

TEST_F(RendezvousHubTest, RefusesBoundsThatNoJobCanHaveAlsoLater) {
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  EXPECT_FALSE(expect(membership(1, rendezvous::kMaxWorld + 1, 2)));
  EXPECT_FALSE(expect(membership(1, rendezvous::kMaxWorld + 1, 2))) << "it is told again";
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  train(2);
}

TEST_F(RendezvousHubTest, KeepsJobsApart) {
  ASSERT_TRUE(expect(membership(1, 1, 1)));
  ASSERT_TRUE(expect(membership(1, 1, 1), 0, "job-2", "ns/other"));
  EXPECT_EQ(made, 2);
  const auto other = member(0, "job-2");
  ASSERT_TRUE(join_later(*other).get());
  EXPECT_TRUE(told.await(News::kMembership, "ns/other"));
  EXPECT_TRUE(progress()->members.empty());
  EXPECT_EQ(hub->members(), 1U);
  hub->close("job-2");
  EXPECT_TRUE(progress());
}

TEST_F(RendezvousHubTest, ARunningWorkerIsSilentOnlyWhenTheHubHasListenedForLong) {
  const seconds timeout =
      std::chrono::duration_cast<seconds>(rendezvous::Settings().heartbeat_timeout);
  const MonotonicTime before = monotonic_now();
  ASSERT_TRUE(expect(membership(1, 2, 2)));
  const MonotonicTime opened = monotonic_now();
  const auto member_0 = member(0);
  auto joining = join_later(*member_0);
  ASSERT_TRUE(told.await(News::kMembership));

  std::vector<reconcile::Worker> workers(3);
  for (int i = 0; i < 3; ++i) {
    workers[static_cast<std::size_t>(i)].index = i;
    workers[static_cast<std::size_t>(i)].phase = reconcile::WorkerPhase::kRunning;
  }
  workers[2].phase = reconcile::WorkerPhase::kPending;
  EXPECT_FALSE(progress(workers, before + timeout)->members.contains(1)) << "it may yet come";
  const auto late = progress(workers, opened + timeout);
  ASSERT_TRUE(late->members.contains(1));
  EXPECT_TRUE(late->members.at(1).silent);
  EXPECT_FALSE(late->members.at(0).silent) << "it is connected";
  EXPECT_FALSE(late->members.contains(2)) << "it does not run";

  // One that has only just started has not had the time.
  const WallTime now = wall_now();
  workers[1].started = now - timeout + seconds(1);
  EXPECT_FALSE(progress(workers, opened + timeout, now)->members.contains(1));
  workers[1].started = now - timeout;
  EXPECT_TRUE(progress(workers, opened + timeout, now)->members.contains(1));

  ASSERT_TRUE(expect(membership(1, 2, 1)));  // lets member 0 go
  EXPECT_TRUE(joining.get());
}

TEST_F(RendezvousHubTest, RefusesSettingsThatNoJobCanHave) {
  const Status opened = expect(membership(1, rendezvous::kMaxWorld + 1, 1));
  ASSERT_FALSE(opened);
  EXPECT_FALSE(progress());
  EXPECT_TRUE(expect(membership(1, 1, 1))) << "it is tried again";
}

TEST(RendezvousHub, SaysWhenItsPortIsTaken) {
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
}  // namespace tilewright::manager
