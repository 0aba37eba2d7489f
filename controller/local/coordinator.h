// The rendezvous as `up` needs it: an address for the workers, a number to expect, what they
// report.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/net/secret.h"
#include "controller/reconcile/observe_rendezvous.h"
#include "controller/reconcile/plan.h"

namespace tilewright::local {

class Coordinator {
 public:
  virtual ~Coordinator() = default;
  virtual std::string endpoint() const = 0;  // host:port
  // The first call opens the job to its members.
  virtual Status expect(const reconcile::Membership& membership) = 0;
  // The job is over: members are sent away.
  virtual void close() = 0;
  // Nothing before the first expect() and after close().
  virtual std::optional<reconcile::RendezvousView> progress() const = 0;
  virtual int changes_fd() const = 0;  // readable when something has changed
  virtual void take_changes() = 0;     // until the next change
};

struct CoordinatorOptions {
  std::string job_uid;
  std::int64_t global_batch = 1;
  bool tls = false;
  rendezvous::Epoch floor = 0;  // the last epoch of an earlier `up` of the job, by its status
};

// Serves on the loopback interface, on a port of its own. Errors: kUsage, no address.
Result<std::unique_ptr<Coordinator>> serve_rendezvous(CoordinatorOptions options,
                                                      net::SecretKey key,
                                                      std::shared_ptr<Logger> log);

}  // namespace tilewright::local
