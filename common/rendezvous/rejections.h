// Counts the connections that the coordinator turns away, and logs them at a bounded rate: a peer
// must not be able to fill the log.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"

namespace tilewright::rendezvous {

enum class Rejection {
  kConnections,      // all connections are in use
  kUnauthenticated,  // the oldest, when all slots of connections without a proof are in use
  kSource,           // the oldest of a source that has used its share of these slots
  kNoProof,          // no valid proof of a job's secret in time
  kJobConnections,   // the job's share of connections
  kJobBuffers,       // the job's share of buffered messages
  kJobMessages,      // the job's rate of messages
  kBuffers,          // the buffered messages of all jobs
  kProtocol,         // a message that no member sends
};
const char* to_string(Rejection reason);  // the label of the metric

class Rejections {
 public:
  // At most one line in this time for each reason and job; a line counts those left out before it.
  static constexpr Duration kLogInterval = std::chrono::seconds(10);

  explicit Rejections(std::shared_ptr<Logger> log);

  // `job_uid` is empty for a peer that has proved nothing.
  void add(Rejection reason, const std::string& job_uid, const std::string& peer,
           const std::string& why, MonotonicTime now);
  // By reason; every reason is present from the start.
  std::map<std::string, std::uint64_t> counts() const { return counts_; }

 private:
  struct Line {
    MonotonicTime written;
    std::uint64_t left_out = 0;
  };
  const std::shared_ptr<Logger> log_;
  std::map<std::string, std::uint64_t> counts_;
  std::map<std::pair<Rejection, std::string>, Line> lines_;
};

}  // namespace tilewright::rendezvous
