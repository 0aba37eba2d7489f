// Counts the connections that a server of jobs (the coordinator, the store of torchrun's agents)
// rejects, and logs them at a bounded rate: a peer must not be able to fill the log.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
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
  kAddress,          // the address is not one of a job's pods
  kJobConnections,   // the job's share of connections
  kJobBuffers,       // the job's share of buffered messages
  kJobMessages,      // the job's rate of messages
  kJobData,          // the job's share of stored keys and values
  kBuffers,          // the buffered messages of all jobs
  kProtocol,         // a message that violates the protocol
  kVersion,          // a member in an epoch, with another version of the protocol
};
// The reasons of the coordinator.
inline constexpr Rejection kCoordinatorRejections[] = {
    Rejection::kConnections, Rejection::kUnauthenticated, Rejection::kSource,
    Rejection::kNoProof,     Rejection::kJobConnections,  Rejection::kJobBuffers,
    Rejection::kJobMessages, Rejection::kBuffers,         Rejection::kProtocol,
    Rejection::kVersion};
const char* to_string(Rejection reason);  // the label of the metric

class Rejections {
 public:
  // At most one line in this time for each reason and job; a line counts those left out before it.
  static constexpr Duration kLogInterval = std::chrono::seconds(10);

  // `server` begins the lines of the log; `reasons` are those that it can give.
  explicit Rejections(std::shared_ptr<Logger> log, std::string server = "rendezvous",
                      std::span<const Rejection> reasons = kCoordinatorRejections);

  // `job_uid` is empty for a peer that has not authenticated.
  void add(Rejection reason, const std::string& job_uid, const std::string& peer,
           const std::string& why, MonotonicTime now);
  // By reason; every reason of the server is present from the start.
  std::map<std::string, std::uint64_t> counts() const { return counts_; }

 private:
  struct Line {
    MonotonicTime written;
    std::uint64_t left_out = 0;
  };
  const std::shared_ptr<Logger> log_;
  const std::string server_;
  std::map<std::string, std::uint64_t> counts_;
  std::map<std::pair<Rejection, std::string>, Line> lines_;
};

}  // namespace tilewright::rendezvous
