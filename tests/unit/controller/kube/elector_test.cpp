// The election as a table of moves; time is passed in.
#include "controller/kube/elector.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "controller/kube/write_guard.h"

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Elector::Act::Kind;

ElectorSettings named(const std::string& identity) {
  ElectorSettings settings;
  settings.identity = identity;
  return settings;
}

class ElectorTest : public ::testing::Test {
 protected:
  Elector::Act next() { return elector.next(now, wall); }
  LeaseRecord held_by(const std::string& holder, const std::string& renewed = "t0") {
    LeaseRecord record;
    record.holder = holder;
    record.lease_seconds = 15;
    record.acquire_time = "then";
    record.renew_time = renewed;
    record.transitions = 3;
    return record;
  }
  // Takes a lease that nobody holds.
  void lead() {
    elector.absent(now);
    const auto act = next();
    ASSERT_EQ(act.kind, Kind::kCreate);
    elector.written(now, now, act.record, "1");
    ASSERT_TRUE(elector.leading(now));
  }

  Elector elector{named("me"), [] { return 0.0; }};
  MonotonicTime now = MonotonicTime() + seconds(1000);
  WallTime wall = WallTime() + seconds(1'700'000'000) + std::chrono::microseconds(42);
};

TEST_F(ElectorTest, ReadsBeforeAnythingElse) {
  EXPECT_EQ(next().kind, Kind::kRead);
  EXPECT_FALSE(elector.leading(now));
}

TEST_F(ElectorTest, CreatesALeaseThatIsNotThere) {
  elector.absent(now);
  const auto act = next();
  ASSERT_EQ(act.kind, Kind::kCreate);
  EXPECT_EQ(act.record.holder, "me");
  EXPECT_EQ(act.record.lease_seconds, 15);
  EXPECT_EQ(act.record.renew_time, "2023-11-14T22:13:20.000042Z");
  EXPECT_EQ(act.record.transitions, 0);
}

TEST_F(ElectorTest, MayWriteFromTheAnswerUntilTheRenewDeadlineAfterTheRequest) {
  elector.absent(now);
  const auto act = next();
  const MonotonicTime sent = now;
  now += seconds(3);
  elector.written(sent, now, act.record, "1");
  EXPECT_TRUE(elector.leading(now));
  EXPECT_EQ(elector.valid_until(), sent + seconds(10))
      << "counted from the request, not its answer";
  EXPECT_FALSE(elector.leading(sent + seconds(10)));
}

TEST_F(ElectorTest, WaitsWhileAnotherRenews) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(next().kind, Kind::kRead);
    elector.read(now, held_by("other", std::to_string(i)), std::to_string(i));
    const auto act = next();
    ASSERT_EQ(act.kind, Kind::kWait);
    EXPECT_EQ(act.until, now + seconds(2));
    now = act.until;
  }
  EXPECT_EQ(elector.holder(), "other");
}

TEST_F(ElectorTest, TakesALeaseThatHasNotChangedForItsDurationOnOurClock) {
  elector.read(now, held_by("other"), "7");
  const MonotonicTime first_seen = now;
  while (true) {
    const auto act = next();
    if (act.kind == Kind::kWait) {
      now = act.until;
    } else if (act.kind == Kind::kRead) {
      elector.read(now, held_by("other"), "7");
    } else {
      ASSERT_EQ(act.kind, Kind::kUpdate);
      EXPECT_EQ(act.resource_version, "7");
      EXPECT_EQ(act.record.transitions, 4);
      EXPECT_EQ(act.record.acquire_time, act.record.renew_time);
      break;
    }
  }
  EXPECT_GE(now, first_seen + seconds(15));
  EXPECT_LE(now, first_seen + seconds(17));
}

TEST_F(ElectorTest, KeepsALongerPromiseOfTheHolder) {
  LeaseRecord record = held_by("other");
  record.lease_seconds = 60;
  elector.read(now, record, "7");
  now += seconds(59);
  elector.read(now, record, "7");
  EXPECT_EQ(next().kind, Kind::kWait);
  now += seconds(1);
  elector.read(now, record, "7");
  EXPECT_EQ(next().kind, Kind::kUpdate);
}

// A candidate that was stopped for a minute has not watched the lease for that time.
TEST_F(ElectorTest, ReadsAgainAfterAPauseBeforeItTakesALease) {
  elector.read(now, held_by("other", "t0"), "7");
  ASSERT_EQ(next().kind, Kind::kWait);
  now += seconds(60);
  ASSERT_EQ(next().kind, Kind::kRead);
  elector.read(now, held_by("other", "t1"), "8");
  EXPECT_EQ(next().kind, Kind::kWait) << "it was renewed meanwhile";
}

TEST_F(ElectorTest, TakesAReleasedLeaseAtOnce) {
  LeaseRecord record = held_by("");
  record.lease_seconds = 1;
  elector.read(now, record, "7");
  EXPECT_EQ(next().kind, Kind::kUpdate);
}

TEST_F(ElectorTest, RenewsEveryPeriodWithoutReading) {
  lead();
  for (int i = 0; i < 5; ++i) {
    auto act = next();
    ASSERT_EQ(act.kind, Kind::kWait);
    EXPECT_EQ(act.until, now + seconds(2));
    now = act.until;
    wall += seconds(2);
    act = next();
    ASSERT_EQ(act.kind, Kind::kUpdate);
    EXPECT_EQ(act.until, elector.valid_until());
    EXPECT_EQ(act.record.transitions, 0);
    EXPECT_EQ(act.record.acquire_time, "2023-11-14T22:13:20.000042Z");
    elector.written(now, now, act.record, std::to_string(i + 2));
  }
  EXPECT_EQ(elector.valid_until(), now + seconds(10));
}

TEST_F(ElectorTest, GivesUpWhenItCannotRenew) {
  lead();
  const MonotonicTime until = elector.valid_until();
  while (true) {
    const auto act = next();
    if (!elector.leading(now)) break;
    if (act.kind == Kind::kWait) {
      ASSERT_LE(act.until, until);
      now = act.until;
    } else {
      elector.failed(now, false);
    }
  }
  EXPECT_EQ(now, until);
  EXPECT_EQ(elector.valid_until(), until);
}

TEST_F(ElectorTest, ReadsAtOnceAfterAConflictAndLosesToAnother) {
  lead();
  now += seconds(2);
  ASSERT_EQ(next().kind, Kind::kUpdate);
  elector.failed(now, true);
  ASSERT_EQ(next().kind, Kind::kRead);
  EXPECT_TRUE(elector.leading(now));
  elector.read(now, held_by("other"), "9");
  EXPECT_FALSE(elector.leading(now));
}

// The write was done and only its answer lost.
TEST_F(ElectorTest, GoesOnAfterARenewalWhoseAnswerWasLost) {
  lead();
  now += seconds(2);
  const auto act = next();
  ASSERT_EQ(act.kind, Kind::kUpdate);
  now += seconds(1);
  elector.failed(now, false);
  now += seconds(2);
  ASSERT_EQ(next().kind, Kind::kRead);
  elector.read(now, act.record, "2");
  const auto again = next();
  ASSERT_EQ(again.kind, Kind::kUpdate);
  EXPECT_EQ(again.resource_version, "2");
  EXPECT_EQ(again.record.transitions, 0);
  EXPECT_TRUE(elector.leading(now));
}

TEST_F(ElectorTest, SpreadsCandidatesByJitter) {
  Elector late(named("late"), [] { return 0.5; });
  late.read(now, held_by("other"), "1");
  EXPECT_EQ(late.next(now, wall).until, now + milliseconds(3200));
}

TEST_F(ElectorTest, ReleasesOnlyWhatItHolds) {
  EXPECT_FALSE(elector.release(now, wall));
  lead();
  const auto act = elector.release(now, wall);
  ASSERT_TRUE(act);
  EXPECT_EQ(act->record.holder, "");
  EXPECT_EQ(act->record.lease_seconds, 1);
  EXPECT_EQ(act->resource_version, "1");
  EXPECT_FALSE(elector.leading(now));
  EXPECT_FALSE(elector.release(now, wall));
}

// The promise of the whole: with any delays and pauses, no two may write at one moment.
TEST(Election, NeverLetsTwoWriteAtOnce) {
  struct Store {
    std::optional<LeaseRecord> record;
    int version = 0;
  } store;
  std::minstd_rand random(5);
  std::vector<Elector> electors;
  for (const char* name : {"a", "b", "c"})
    electors.emplace_back(named(name),
                          [&random] { return static_cast<double>(random() % 1000) / 1000; });
  std::vector<MonotonicTime> busy(3, MonotonicTime() + seconds(1));
  MonotonicTime now = MonotonicTime() + seconds(1);
  int terms = 0;
  std::string last;
  for (int step = 0; step < 30000; ++step) {
    now += milliseconds(random() % 400);
    const std::size_t i = random() % 3;
    if (now < busy[i]) continue;
    Elector& elector = electors[i];
    const auto act = elector.next(now, WallTime());
    if (act.kind == Kind::kWait) {
      if (random() % 200 == 0) busy[i] = now + seconds(random() % 40);  // stopped by the machine
      continue;
    }
    const MonotonicTime sent = now;
    const bool lost = random() % 10 == 0;  // the answer; the request may have been done
    const bool arrives = !lost || random() % 2 == 0;
    now += milliseconds(random() % 300);
    if (act.kind == Kind::kRead) {
      if (lost) {
        elector.failed(now, false);
      } else if (!store.record) {
        elector.absent(now);
      } else {
        elector.read(now, *store.record, std::to_string(store.version));
      }
    } else {
      const bool fits = act.kind == Kind::kCreate
                            ? !store.record
                            : store.record && std::to_string(store.version) == act.resource_version;
      if (arrives && fits) {
        store.record = act.record;
        ++store.version;
      }
      if (lost || !fits) {
        elector.failed(now, !fits && !lost);
      } else {
        elector.written(sent, now, act.record, std::to_string(store.version));
      }
    }
    int leaders = 0;
    for (std::size_t j = 0; j < 3; ++j) leaders += electors[j].leading(now) ? 1 : 0;
    ASSERT_LE(leaders, 1) << "at step " << step;
    if (store.record && store.record->holder != last) {
      last = store.record->holder;
      ++terms;
    }
  }
  EXPECT_GT(terms, 5) << "leadership hardly moved: the test tests nothing";
}

TEST(WriteGuard, NeverOpensAgain) {
  const MonotonicTime now = MonotonicTime() + seconds(100);
  WriteGuard guard(now + seconds(10));
  EXPECT_TRUE(guard.permits(now));
  EXPECT_TRUE(guard.extend(now + seconds(5), now + seconds(15)));
  EXPECT_TRUE(guard.permits(now + seconds(14)));
  EXPECT_FALSE(guard.permits(now + seconds(15)));
  EXPECT_FALSE(guard.extend(now + seconds(15), now + seconds(30))) << "it had run out";
  EXPECT_FALSE(guard.permits(now + seconds(16)));
  WriteGuard revoked(now + seconds(10));
  revoked.revoke();
  EXPECT_FALSE(revoked.extend(now, now + seconds(20)));
  EXPECT_FALSE(revoked.permits(now));
}

}  // namespace
}  // namespace tilewright::kube
