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

}  // namespace
}  // namespace tilewright::kube
