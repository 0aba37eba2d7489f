// Bounds on what peers may use of the coordinator, so that neither a faulty member nor a stranger
// takes the memory or the connections of the other jobs.
#pragma once

#include <cstddef>

#include "common/base/clock.h"

namespace tilewright::rendezvous {

struct Limits {
  // Of all jobs together. One with TLS takes 14 KiB, so all take less than half of the controller's
  // memory limit in the Helm chart.
  std::size_t connections = 8192;
  // Memory of messages that are incomplete or that the peer has not read yet. A quarter of the
  // controller's memory limit in the Helm chart.
  std::size_t buffered_bytes = 64 << 20;
  // Connections without a proof yet, in all and from one source: an IPv4 address or an IPv6 /64
  // network. A proof takes one round trip, so members need few.
  std::size_t unauthenticated = 256;
  std::size_t unauthenticated_per_source = 64;
};

// The share of one job.
struct JobLimits {
  std::size_t connections = 0;
  std::size_t buffered_bytes = 0;
  double messages_per_second = 0;  // see message_cost()
};
JobLimits job_limits(const Limits& limits, int max_world);

// A long message costs as much as several short ones, because decoding takes time by length.
double message_cost(std::size_t bytes);

// What the connections of a job use.
struct Usage {
  std::size_t connections = 0;
  std::size_t buffered_bytes = 0;
};

// Grants tokens at a rate. After a pause, up to kBurst worth of tokens are available at once.
class TokenBucket {
 public:
  static constexpr Duration kBurst = std::chrono::seconds(10);

  // Takes the tokens if they are available.
  bool take(double tokens, double rate, MonotonicTime now);
  // Takes tokens that are not available yet, for a cost that is known only afterwards.
  void owe(double tokens) { spent_ += tokens; }

 private:
  // Counts spent tokens, so that a new bucket is full whatever the rate.
  double spent_ = 0;
  MonotonicTime last_;
};

}  // namespace tilewright::rendezvous
