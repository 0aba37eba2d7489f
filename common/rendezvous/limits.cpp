#include "common/rendezvous/limits.h"

#include <algorithm>

#include "common/base/clock.h"

namespace tilewright::rendezvous {
namespace {

// A process that restarts or reconnects has two connections for a moment.
constexpr std::size_t kConnectionsPerProcess = 2;
constexpr std::size_t kSpareConnections = 16;
// One message of the largest size, in a buffer that grows by doubling.
constexpr std::size_t kLargestMessageBytes = 2 << 20;
constexpr std::size_t kBufferPerProcess = 64 << 10;
// A process sends about one message per second.
constexpr double kMessagesPerProcess = 100;
constexpr double kMaxMessagesPerSecond = 5000;  // several times those of kMaxWorld processes
constexpr double kBytesPerToken = 4096;

}  // namespace

JobLimits job_limits(const Limits& limits, int max_world) {
  const auto processes = static_cast<std::size_t>(max_world);
  return {.connections = kConnectionsPerProcess * processes + kSpareConnections,
          .buffered_bytes = std::min(kLargestMessageBytes + kBufferPerProcess * processes,
                                     limits.buffered_bytes / 2),
          .messages_per_second =
              std::min(kMessagesPerProcess * (max_world + 1), kMaxMessagesPerSecond)};
}

double message_cost(std::size_t bytes) { return 1 + static_cast<double>(bytes) / kBytesPerToken; }

bool TokenBucket::take(double tokens, double rate, MonotonicTime now) {
  const double earned = rate * in_seconds(now - last_);
  spent_ = std::max(0.0, spent_ - earned);
  last_ = now;
  if (spent_ + tokens > rate * in_seconds(kBurst)) return false;
  spent_ += tokens;
  return true;
}

}  // namespace tilewright::rendezvous
