// Which failures are tried again, and when.
#include "controller/kube/retry.h"

#include <gtest/gtest.h>

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ApiError failed(Problem problem, bool maybe_applied = false) {
  ApiError error;
  error.problem = problem;
  error.maybe_applied = maybe_applied;
  return error;
}

bool again(const ApiError& error, Repeatable repeatable) {
  return retry_delay({}, error, repeatable, 1, 0.0).has_value();
}

TEST(Retry, RepeatsOnlyWhatDoesNoHarm) {
  struct Row {
    ApiError error;
    bool yes, untouched, eviction;
  };
  const Row rows[] = {
      {failed(Problem::kTooManyRequests), true, true, false},
      {failed(Problem::kTransport, false), true, true, true},
      {failed(Problem::kTransport, true), true, false, false},
      {failed(Problem::kTimedOut, false), true, true, true},
      {failed(Problem::kTimedOut, true), true, false, false},
      {failed(Problem::kServer, true), true, false, false},
      {failed(Problem::kServerTimeout, true), true, false, false},
      {failed(Problem::kNotFound), false, false, false},
      {failed(Problem::kAlreadyExists), false, false, false},
      {failed(Problem::kConflict), false, false, false},
      {failed(Problem::kGone), false, false, false},
      {failed(Problem::kInvalid), false, false, false},
      {failed(Problem::kForbidden), false, false, false},
      {failed(Problem::kUnauthorized), false, false, false},
      {failed(Problem::kCancelled), false, false, false},
      {failed(Problem::kFenced), false, false, false},
      {failed(Problem::kProtocol), false, false, false},
      {failed(Problem::kOther), false, false, false},
  };
  for (const Row& row : rows) {
    const std::string name(to_string(row.error.problem));
    EXPECT_EQ(again(row.error, Repeatable::kYes), row.yes) << name;
    EXPECT_EQ(again(row.error, Repeatable::kIfUntouched), row.untouched) << name;
    EXPECT_EQ(again(row.error, Repeatable::kIfUntouchedAndNotRefused), row.eviction) << name;
  }
}

TEST(Retry, DoublesItsDelayAndHalfOfItIsRandom) {
  const RetryPolicy policy{10, milliseconds(100), seconds(1)};
  const ApiError error = failed(Problem::kServer);
  const auto delay = [&](int attempts, double jitter) {
    return *retry_delay(policy, error, Repeatable::kYes, attempts, jitter);
  };
  EXPECT_EQ(delay(1, 0.0), milliseconds(50));
  EXPECT_EQ(delay(1, 0.5), milliseconds(75));
  EXPECT_EQ(delay(2, 0.0), milliseconds(100));
  EXPECT_EQ(delay(3, 0.0), milliseconds(200));
  EXPECT_EQ(delay(9, 0.0), milliseconds(500)) << "half of the most";
}

TEST(Retry, WaitsAsLongAsTheServerAsks) {
  ApiError error = failed(Problem::kTooManyRequests);
  error.retry_after = seconds(7);
  EXPECT_EQ(retry_delay({}, error, Repeatable::kYes, 1, 0.9), seconds(7));
}

TEST(Retry, GivesUpAfterTheLastAttempt) {
  RetryPolicy policy;
  policy.attempts = 3;
  EXPECT_TRUE(retry_delay(policy, failed(Problem::kServer), Repeatable::kYes, 2, 0));
  EXPECT_FALSE(retry_delay(policy, failed(Problem::kServer), Repeatable::kYes, 3, 0));
}

TEST(ReflectorBackoff, DoublesUntilSomethingGoesWell) {
  ReflectorBackoff backoff(milliseconds(200), seconds(1), [] { return 1.0; });
  const ApiError broken = failed(Problem::kTransport);
  for (const int delay : {200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(backoff.after(broken), milliseconds(delay));
  }
  backoff.went_well();
  EXPECT_EQ(backoff.after(broken), milliseconds(200));
}

TEST(ReflectorBackoff, ListsAtOnceUponAnExpiredVersionWhateverFailedBefore) {
  ReflectorBackoff backoff(milliseconds(200), seconds(30), [] { return 1.0; });
  const ApiError expired = failed(Problem::kGone);
  // An API server that restarts: not there, not ready, and then its watch cache begins anew.
  for (int i = 0; i < 8; ++i) backoff.after(failed(Problem::kTransport));
  EXPECT_EQ(backoff.after(expired), Duration::zero());
  EXPECT_EQ(backoff.after(failed(Problem::kTransport)), milliseconds(200));
  // One that says so of each list it has just answered must not be asked in a tight loop.
  EXPECT_EQ(backoff.after(expired), milliseconds(200));
  EXPECT_EQ(backoff.after(expired), milliseconds(400));
  backoff.went_well();
  EXPECT_EQ(backoff.after(expired), Duration::zero());
}

TEST(ReflectorBackoff, GivesTheServerTheTimeItAsksFor) {
  ReflectorBackoff backoff(milliseconds(200), seconds(30), [] { return 1.0; });
  ApiError busy = failed(Problem::kTooManyRequests);
  busy.retry_after = seconds(5);
  EXPECT_EQ(backoff.after(busy), seconds(5));
}

}  // namespace
}  // namespace tilewright::kube
