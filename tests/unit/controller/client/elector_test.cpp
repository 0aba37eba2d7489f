// Tests of the Elector state machine with simulated time.
#include "controller/client/elector.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "controller/client/write_guard.h"

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using FailureKind = Elector::FailureKind;
using Kind = Elector::Action::Kind;

ElectorSettings named(const std::string& identity) {
  ElectorSettings settings;
  settings.identity = identity;
  return settings;
}

class ElectorTest : public ::testing::Test {
 protected:
  Elector::Action next() { return elector.next(now, wall); }
  LeaseRecord held_by(const std::string& holder, const std::string& renewed = "t0") {
    LeaseRecord record;
    record.holder = holder;
    record.lease_seconds = 15;
    record.acquire_time = "then";
    record.renew_time = renewed;
    record.transitions = 3;
    return record;
  }
  // Acquires a lease that has no holder.
  void lead() {
    elector.on_absent(now);
    const auto action = next();
    ASSERT_EQ(action.kind, Kind::kCreate);
    elector.on_written(now, now, action.record, "1");
    ASSERT_TRUE(elector.leading(now));
  }

  Elector elector{named("me"), [] { return 0.0; }};
  MonotonicTime now = MonotonicTime() + seconds(1000);
  WallTime wall = WallTime() + seconds(1'700'000'000) + std::chrono::microseconds(42);
};

TEST_F(ElectorTest, ReadsTheLeaseFirst) {
  EXPECT_EQ(next().kind, Kind::kRead);
  EXPECT_FALSE(elector.leading(now));
}

TEST_F(ElectorTest, CreatesAMissingLease) {
  elector.on_absent(now);
  const auto action = next();
  ASSERT_EQ(action.kind, Kind::kCreate);
  EXPECT_EQ(action.record.holder, "me");
  EXPECT_EQ(action.record.lease_seconds, 15);
  EXPECT_EQ(action.record.renew_time, "2023-11-14T22:13:20.000042Z");
  EXPECT_EQ(action.record.transitions, 0);
}

TEST_F(ElectorTest, LeadsFromTheResponseUntilTheRenewDeadlineAfterTheRequest) {
  elector.on_absent(now);
  const auto action = next();
  const MonotonicTime sent = now;
  now += seconds(3);
  elector.on_written(sent, now, action.record, "1");
  EXPECT_TRUE(elector.leading(now));
  EXPECT_EQ(elector.valid_until(), sent + seconds(10))
      << "counted from the request, not from its response";
  EXPECT_FALSE(elector.leading(sent + seconds(10)));
}

// A connection to an API server that is gone without a reset.
TEST_F(ElectorTest, RepeatsARenewalWithoutAnAnswerBeforeItsLeaseEnds) {
  lead();
  const MonotonicTime valid_until = elector.valid_until();
  now += seconds(2);
  const auto action = next();
  ASSERT_EQ(action.kind, Kind::kUpdate);
  EXPECT_EQ(action.until, now + seconds(5)) << "half of the renewal deadline";
  now = action.until;
  elector.on_failed(now, FailureKind::kOther);
  ASSERT_EQ(next().kind, Kind::kRead) << "at once: it waited long enough for the answer";
  elector.on_read(now, action.record, "2");  // it had been applied
  const auto again = next();
  ASSERT_EQ(again.kind, Kind::kUpdate);
  EXPECT_EQ(again.resource_version, "2");
  EXPECT_EQ(again.until, valid_until);
  elector.on_written(now, now, again.record, "3");
  EXPECT_TRUE(elector.leading(valid_until));
}

TEST_F(ElectorTest, WaitsWhileAnotherHolderRenews) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(next().kind, Kind::kRead);
    elector.on_read(now, held_by("other", std::to_string(i)), std::to_string(i));
    const auto action = next();
    ASSERT_EQ(action.kind, Kind::kWait);
    EXPECT_EQ(action.until, now + seconds(2));
    now = action.until;
  }
  EXPECT_EQ(elector.holder(), "other");
}

TEST_F(ElectorTest, TakesALeaseThatIsUnchangedForItsDurationOnTheLocalClock) {
  elector.on_read(now, held_by("other"), "7");
  const MonotonicTime first_seen = now;
  while (true) {
    const auto action = next();
    if (action.kind == Kind::kWait) {
      now = action.until;
    } else if (action.kind == Kind::kRead) {
      elector.on_read(now, held_by("other"), "7");
    } else {
      ASSERT_EQ(action.kind, Kind::kUpdate);
      EXPECT_EQ(action.resource_version, "7");
      EXPECT_EQ(action.record.transitions, 4);
      EXPECT_EQ(action.record.acquire_time, action.record.renew_time);
      break;
    }
  }
  EXPECT_GE(now, first_seen + seconds(15));
  EXPECT_LE(now, first_seen + seconds(17));
}

TEST_F(ElectorTest, RespectsALongerLeaseDurationOfTheHolder) {
  LeaseRecord record = held_by("other");
  record.lease_seconds = 60;
  elector.on_read(now, record, "7");
  now += seconds(59);
  elector.on_read(now, record, "7");
  EXPECT_EQ(next().kind, Kind::kWait);
  now += seconds(1);
  elector.on_read(now, record, "7");
  EXPECT_EQ(next().kind, Kind::kUpdate);
}

TEST_F(ElectorTest, BoundsTheNumbersOfALease) {
  const auto decoded = [](const char* duration, const char* transitions) {
    return decode_lease(nlohmann::json::parse(
        fmt::format(R"({{"spec": {{"holderIdentity": "other", "leaseDurationSeconds": {},
                                   "leaseTransitions": {}}}}})",
                    duration, transitions)));
  };
  EXPECT_EQ(decoded("15", "3").lease_seconds, 15);
  EXPECT_EQ(decoded("15", "3").transitions, 3);
  EXPECT_EQ(decoded("-1", "-1").lease_seconds, 0);
  EXPECT_EQ(decoded("-1", "-1").transitions, 0);
  for (const char* huge : {"9223372036854775807", "18446744073709551615"}) {
    const LeaseRecord record = decoded(huge, huge);
    EXPECT_EQ(record.lease_seconds, kMaxLeaseSeconds);
    elector.on_read(now, record, "7");
    now += seconds(kMaxLeaseSeconds);
    elector.on_read(now, record, "7");
    const auto action = next();
    EXPECT_EQ(action.kind, Kind::kUpdate) << "the lease of a holder that is gone stays";
    EXPECT_EQ(action.record.transitions, record.transitions + 1);
    EXPECT_LE(action.record.transitions, std::numeric_limits<std::int32_t>::max());
  }
}

// A candidate that was paused for a minute did not observe the lease in that time.
TEST_F(ElectorTest, ReadsAgainAfterAPauseBeforeItTakesALease) {
  elector.on_read(now, held_by("other", "t0"), "7");
  ASSERT_EQ(next().kind, Kind::kWait);
  now += seconds(60);
  ASSERT_EQ(next().kind, Kind::kRead);
  elector.on_read(now, held_by("other", "t1"), "8");
  EXPECT_EQ(next().kind, Kind::kWait) << "renewed in the meantime";
}

TEST_F(ElectorTest, TakesAReleasedLeaseAtOnce) {
  LeaseRecord record = held_by("");
  record.lease_seconds = 1;
  elector.on_read(now, record, "7");
  EXPECT_EQ(next().kind, Kind::kUpdate);
}

TEST_F(ElectorTest, RenewsEveryPeriodWithoutReading) {
  lead();
  for (int i = 0; i < 5; ++i) {
    auto action = next();
    ASSERT_EQ(action.kind, Kind::kWait);
    EXPECT_EQ(action.until, now + seconds(2));
    now = action.until;
    wall += seconds(2);
    action = next();
    ASSERT_EQ(action.kind, Kind::kUpdate);
    EXPECT_EQ(action.until, now + seconds(5));
    EXPECT_EQ(action.record.transitions, 0);
    EXPECT_EQ(action.record.acquire_time, "2023-11-14T22:13:20.000042Z");
    elector.on_written(now, now, action.record, std::to_string(i + 2));
  }
  EXPECT_EQ(elector.valid_until(), now + seconds(10));
}

TEST_F(ElectorTest, StopsLeadingWhenItCannotRenew) {
  lead();
  const MonotonicTime until = elector.valid_until();
  while (true) {
    const auto action = next();
    if (!elector.leading(now)) break;
    if (action.kind == Kind::kWait) {
      ASSERT_LE(action.until, until);
      now = action.until;
    } else {
      elector.on_failed(now, FailureKind::kOther);
    }
  }
  EXPECT_EQ(now, until);
  EXPECT_EQ(elector.valid_until(), until);
}

TEST_F(ElectorTest, ReadsAtOnceAfterAConflictAndYieldsToTheNewHolder) {
  lead();
  now += seconds(2);
  ASSERT_EQ(next().kind, Kind::kUpdate);
  elector.on_failed(now, FailureKind::kConflict);
  ASSERT_EQ(next().kind, Kind::kRead);
  EXPECT_TRUE(elector.leading(now));
  elector.on_read(now, held_by("other"), "9");
  EXPECT_FALSE(elector.leading(now));
}

// The write was applied and only its response was lost.
TEST_F(ElectorTest, ContinuesAfterARenewalWhoseResponseWasLost) {
  lead();
  now += seconds(2);
  const auto action = next();
  ASSERT_EQ(action.kind, Kind::kUpdate);
  now += seconds(1);
  elector.on_failed(now, FailureKind::kOther);
  now += seconds(2);
  ASSERT_EQ(next().kind, Kind::kRead);
  elector.on_read(now, action.record, "2");
  const auto again = next();
  ASSERT_EQ(again.kind, Kind::kUpdate);
  EXPECT_EQ(again.resource_version, "2");
  EXPECT_EQ(again.record.transitions, 0);
  EXPECT_TRUE(elector.leading(now));
}

TEST_F(ElectorTest, SpreadsCandidatesByJitter) {
  Elector late(named("late"), [] { return 0.5; });
  late.on_read(now, held_by("other"), "1");
  EXPECT_EQ(late.next(now, wall).until, now + milliseconds(3200));
}

TEST_F(ElectorTest, ReleasesTheLeaseOnlyIfItHoldsIt) {
  EXPECT_FALSE(elector.release(now, wall));
  lead();
  const auto action = elector.release(now, wall);
  ASSERT_TRUE(action);
  EXPECT_EQ(action->record.holder, "");
  EXPECT_EQ(action->record.lease_seconds, 1);
  EXPECT_EQ(action->resource_version, "1");
  EXPECT_FALSE(elector.leading(now));
  EXPECT_FALSE(elector.release(now, wall));
}

// The guarantee of leader election: with any delays and pauses, at most one elector may write.
TEST(Election, AllowsAtMostOneWriter) {
  struct Store {
    std::optional<LeaseRecord> record;
    int version = 0;
  } store;
  std::minstd_rand random(5);
  std::vector<Elector> electors;
  for (const char* name : {"a", "b", "c"})
    electors.emplace_back(named(name),
                          [&random] { return static_cast<double>(random() % 1000) / 1000; });
  std::vector<MonotonicTime> paused_until(3, MonotonicTime() + seconds(1));
  MonotonicTime now = MonotonicTime() + seconds(1);
  int sessions = 0;
  std::string last;
  for (int step = 0; step < 30000; ++step) {
    now += milliseconds(random() % 400);
    const std::size_t i = random() % 3;
    if (now < paused_until[i]) continue;
    Elector& elector = electors[i];
    const auto action = elector.next(now, WallTime());
    if (action.kind == Kind::kWait) {
      if (random() % 200 == 0) paused_until[i] = now + seconds(random() % 40);
      continue;
    }
    const MonotonicTime sent = now;
    const bool lost =
        random() % 10 == 0;  // the response is lost; the request may have been applied
    const bool arrives = !lost || random() % 2 == 0;
    now += milliseconds(random() % 300);
    if (action.kind == Kind::kRead) {
      if (lost) {
        elector.on_failed(now, FailureKind::kOther);
      } else if (!store.record) {
        elector.on_absent(now);
      } else {
        elector.on_read(now, *store.record, std::to_string(store.version));
      }
    } else {
      const bool fits =
          action.kind == Kind::kCreate
              ? !store.record
              : store.record && std::to_string(store.version) == action.resource_version;
      if (arrives && fits) {
        store.record = action.record;
        ++store.version;
      }
      if (lost || !fits) {
        elector.on_failed(now, lost ? FailureKind::kOther : FailureKind::kConflict);
      } else {
        elector.on_written(sent, now, action.record, std::to_string(store.version));
      }
    }
    int leaders = 0;
    for (std::size_t j = 0; j < 3; ++j) leaders += electors[j].leading(now) ? 1 : 0;
    ASSERT_LE(leaders, 1) << "at step " << step;
    if (store.record && store.record->holder != last) {
      last = store.record->holder;
      ++sessions;
    }
  }
  EXPECT_GT(sessions, 5) << "too few leadership changes to test anything";
}

TEST(WriteGuard, PermitsNoWritesOnceExpired) {
  const MonotonicTime now = MonotonicTime() + seconds(100);
  WriteGuard guard(now + seconds(10));
  EXPECT_TRUE(guard.permits(now));
  EXPECT_TRUE(guard.extend(now + seconds(5), now + seconds(15)));
  EXPECT_TRUE(guard.permits(now + seconds(14)));
  EXPECT_FALSE(guard.permits(now + seconds(15)));
  EXPECT_FALSE(guard.extend(now + seconds(15), now + seconds(30))) << "already expired";
  EXPECT_FALSE(guard.permits(now + seconds(16)));
  WriteGuard revoked(now + seconds(10));
  revoked.revoke();
  EXPECT_FALSE(revoked.extend(now, now + seconds(20)));
  EXPECT_FALSE(revoked.permits(now));
}

}  // namespace
}  // namespace tilewright::kube
