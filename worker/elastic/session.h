// A worker's part in its job: from the environment it was started with to assignments, epoch after
// epoch; or alone, when nobody coordinates.
//
//   Session session(settings_from_environment(getenv...), isa, &signals, log);
//   auto listener = net::Listener::bind(session.address());
//   session.listen_at(listener.local_address());
//   while (auto assignment = session.join(step)) {      // nullopt: the job is finished
//     ... connect the peers, waiting with session.epoch_bell() as the cancellation ...
//     session.on_epoch_end([&](const std::string& why) { mesh.abort(why); });
//     ... train, report(), leave at a step boundary when should_leave() ...
//     session.on_epoch_end({});
//   }
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "common/rendezvous/client.h"
#include "worker/elastic/signals.h"

namespace tilewright::elastic {

// A variable's value; empty when it is not set.
using Environment = std::function<std::string(const char* name)>;

struct SessionSettings {
  std::optional<net::Address> coordinator;  // nullopt: a single process
  std::string job_uid;
  std::filesystem::path key_file;
  bool tls = false;  // with the coordinator and with the other workers
  rendezvous::Seat seat;
  std::uint16_t transport_port = 0;  // of this process, for the other workers; 0: any free one
  // How long join() waits for an epoch: other workers' pods may have to be scheduled first.
  Duration join_limit = std::chrono::minutes(10);
  // How long finish() waits for a coordinator that is away.
  Duration finish_limit = std::chrono::seconds(30);
  Duration heartbeat_interval = std::chrono::seconds(1);
};

// From the variables of common/contract/environment.h. Throws Failure(kUsage) that names the
// variable, what was found and what was expected.
SessionSettings settings_from_environment(const Environment& environment);

class Session {
 public:
  // Throws Failure(kUsage) when the key cannot be read. `signals` may be null.
  Session(SessionSettings settings, std::string isa, const StopSignals* signals,
          std::shared_ptr<Logger> log);

  bool alone() const { return !settings_.coordinator; }
  const std::string& job_uid() const { return settings_.job_uid; }
  const net::SecretKey& key() const;  // not alone
  bool tls() const { return settings_.tls; }
  // Where to listen for the other workers: the local address by which the coordinator, hence they,
  // can be reached, and settings.transport_port. Throws Failure(kPeerLost) when the coordinator's
  // name does not resolve.
  net::Address address() const;
  // Where the others reach this worker's transport; before the first join().
  void listen_at(const net::Address& transport);

  // The next epoch; gives up the one it is in. nullopt: the job is finished, there is nothing to
  // do. Throws Failure: kPeerLost (no epoch in time), kUnsupported (refused), the signal's code.
  std::optional<rendezvous::Assignment> join(std::int64_t last_checkpoint_step);
  // Cheap; what the next heartbeat says.
  void report(const rendezvous::Progress& progress);

  bool epoch_ended() const { return epoch_bell().signalled(); }
  const net::WakeUp& epoch_bell() const;  // rung while the epoch is over
  void on_epoch_end(rendezvous::Client::EpochEndHandler handler);
  // At a step boundary: the members are asked to form a larger epoch, or this process to stop. The
  // workers of an epoch hear it at different times and have to agree on the step.
  bool should_leave() const;
  std::optional<ExitCode> stopped() const;  // by a signal: the code to exit with
  std::string reason() const;               // why the epoch ended or shall end

  // This worker's part is done. False: the epoch was broken first, join() again. A coordinator that
  // stays away is no failure: the exit code tells the same.
  bool finish();
  // Says goodbye, so that the others need not find out.
  void leave(const std::string& reason);

 private:
  const SessionSettings settings_;
  const std::string isa_;
  const StopSignals* signals_;
  const std::shared_ptr<Logger> log_;
  std::optional<net::SecretKey> key_;
  std::unique_ptr<rendezvous::Client> client_;
  net::WakeUp never_;  // of a single process, whose epochs end by themselves
  rendezvous::Epoch alone_epoch_ = 0;
  std::string address_;
};

}  // namespace tilewright::elastic
