// Tests of the retry decisions and delays.
#include "controller/client/retry.h"

#include <gtest/gtest.h>

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ApiError failed(ErrorKind kind, bool maybe_applied = false) {
  ApiError error;
  error.kind = kind;
  error.maybe_applied = maybe_applied;
  return error;
}

bool is_retried(const ApiError& error, RetrySafety retry_safety) {
  return retry_delay({}, error, retry_safety, 1, 0.0).has_value();
}

TEST(Retry, RetriesOnlySafeRequests) {
  struct Row {
    ApiError error;
    bool if_always, if_not_processed;
  };
  const Row rows[] = {
      {failed(ErrorKind::kTooManyRequests), true, true},
      {failed(ErrorKind::kTransport, false), true, true},
      {failed(ErrorKind::kTransport, true), true, false},
      {failed(ErrorKind::kTimedOut, false), true, true},
      {failed(ErrorKind::kTimedOut, true), true, false},
      {failed(ErrorKind::kServer, true), true, false},
      {failed(ErrorKind::kServerTimeout, true), true, false},
      {failed(ErrorKind::kNotFound), false, false},
      {failed(ErrorKind::kAlreadyExists), false, false},
      {failed(ErrorKind::kConflict), false, false},
      {failed(ErrorKind::kGone), false, false},
      {failed(ErrorKind::kInvalid), false, false},
      {failed(ErrorKind::kForbidden), false, false},
      {failed(ErrorKind::kUnauthorized), false, false},
      {failed(ErrorKind::kCancelled), false, false},
      {failed(ErrorKind::kFenced), false, false},
      {failed(ErrorKind::kProtocol), false, false},
      {failed(ErrorKind::kTooLarge), false, false},
      {failed(ErrorKind::kOther), false, false},
  };
  for (const Row& row : rows) {
    const std::string name(to_string(row.error.kind));
    EXPECT_EQ(is_retried(row.error, RetrySafety::kAlways), row.if_always) << name;
    EXPECT_EQ(is_retried(row.error, RetrySafety::kIfNotProcessed), row.if_not_processed) << name;
  }
}

TEST(Retry, DoublesTheDelayWithHalfOfItRandom) {
  const RetryPolicy policy{10, milliseconds(100), seconds(1)};
  const ApiError error = failed(ErrorKind::kServer);
  const auto delay = [&](int attempts, double jitter) {
    return *retry_delay(policy, error, RetrySafety::kAlways, attempts, jitter);
  };
  EXPECT_EQ(delay(1, 0.0), milliseconds(50));
  EXPECT_EQ(delay(1, 0.5), milliseconds(75));
  EXPECT_EQ(delay(2, 0.0), milliseconds(100));
  EXPECT_EQ(delay(3, 0.0), milliseconds(200));
  EXPECT_EQ(delay(9, 0.0), milliseconds(500)) << "half of the maximum";
}

TEST(Retry, RespectsRetryAfter) {
  ApiError error = failed(ErrorKind::kTooManyRequests);
  error.retry_after = seconds(7);
  EXPECT_EQ(retry_delay({}, error, RetrySafety::kAlways, 1, 0.9), seconds(7));
}

TEST(Retry, StopsAfterTheLastAttempt) {
  RetryPolicy policy;
  policy.attempts = 3;
  EXPECT_TRUE(retry_delay(policy, failed(ErrorKind::kServer), RetrySafety::kAlways, 2, 0));
  EXPECT_FALSE(retry_delay(policy, failed(ErrorKind::kServer), RetrySafety::kAlways, 3, 0));
}

TEST(ReflectorBackoff, DoublesUntilReset) {
  ReflectorBackoff backoff(milliseconds(200), seconds(1), [] { return 1.0; });
  const ApiError broken = failed(ErrorKind::kTransport);
  for (const int delay : {200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(backoff.after(broken), milliseconds(delay));
  }
  backoff.reset();
  EXPECT_EQ(backoff.after(broken), milliseconds(200));
}

TEST(ReflectorBackoff, DoesNotDelayTheFirstListAfterAnExpiredVersion) {
  ReflectorBackoff backoff(milliseconds(200), seconds(30), [] { return 1.0; });
  const ApiError expired = failed(ErrorKind::kGone);
  // A restarting API server: unreachable, not ready, then a watch cache without history.
  for (int i = 0; i < 8; ++i) backoff.after(failed(ErrorKind::kTransport));
  EXPECT_EQ(backoff.after(expired), Duration::zero());
  EXPECT_EQ(backoff.after(failed(ErrorKind::kTransport)), milliseconds(200));
  // If every list expires immediately, the delays prevent a tight loop.
  EXPECT_EQ(backoff.after(expired), milliseconds(200));
  EXPECT_EQ(backoff.after(expired), milliseconds(400));
  backoff.reset();
  EXPECT_EQ(backoff.after(expired), Duration::zero());
}

TEST(ReflectorBackoff, RespectsRetryAfter) {
  ReflectorBackoff backoff(milliseconds(200), seconds(30), [] { return 1.0; });
  ApiError busy = failed(ErrorKind::kTooManyRequests);
  busy.retry_after = seconds(5);
  EXPECT_EQ(backoff.after(busy), seconds(5));
}

}  // namespace
}  // namespace tilewright::kube
