// A worker's membership in its job: joins membership epochs through the rendezvous that the
// environment names; without one it runs as a standalone process.
//
//   Session session(settings_from_environment(environment_variable), &signals, log);
//   session.set_isas(names);
//   auto listener = net::Listener::bind(session.address()).or_throw();
//   session.advertise_address(listener.local_address());
//   while (auto assignment = session.join(step)) {      // nullopt: the job is finished
//     ... connect the peers, waiting with session.epoch_cancel_token() as the cancellation ...
//     session.on_epoch_end([&](const std::string& why) { mesh.abort(why); });
//     ... train, report(), leave at a step boundary when stop_requested() ...
//     session.on_epoch_end({});
//   }
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/log.h"
#include "common/base/strings.h"
#include "common/net/connect.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "common/process/signals.h"
#include "common/rendezvous/client.h"
#include "worker/elastic/network_interface.h"

namespace tilewright::elastic {

// The prefix of the UID of an agent on one host without --rdzv_id. Such a UID names a launch, not a
// job.
inline constexpr std::string_view kLaunchUidPrefix = "agent-";
// The UID of agents on several hosts without --rdzv_id, as in torchrun: it names neither a launch
// nor a job.
inline constexpr const char* kUnnamedJob = "none";

struct SessionSettings {
  std::optional<net::Address> coordinator;  // nullopt: standalone
  std::string job_uid;
  bool uid_of_agent = false;  // job_uid is the --rdzv_id of an agent, or in place of one
  std::filesystem::path key_file;
  std::shared_ptr<const net::SecretKey> key;  // null: in key_file
  bool tls = false;                           // with the coordinator and with the other workers
  rendezvous::WorkerProcess process;
  std::string transport_host;        // where the other workers connect; empty: found, see address()
  InterfaceChoice interface;         // at whose address the other workers connect
  std::uint16_t transport_port = 0;  // of this process, for the other workers; 0: any free port
  // The run ends with its first membership epoch: no program restarts a lost process. Its output
  // belongs to the flags instead of job_uid, as that of a standalone process.
  bool single_epoch = false;
  // How long join() waits for a membership epoch while none is current: the pods of other workers
  // may have to be scheduled first.
  Duration join_timeout = std::chrono::minutes(10);
  // How long finish() waits for an unreachable coordinator.
  Duration finish_timeout = std::chrono::seconds(30);
  Duration heartbeat_interval = std::chrono::seconds(1);
};

// From the variables of common/contract/environment.h. Throws Failure(kUsage) that names the
// variable, what was found and what was expected.
SessionSettings settings_from_environment(const GetVariable& environment);

// TILEWRIGHT_TRANSPORT_PORT is the port of local rank 0; local rank i uses that port + i. 0: not
// set.
std::uint16_t transport_port_from(const GetVariable& environment, int local_rank);
// TILEWRIGHT_TLS.
bool tls_from(const GetVariable& environment);

class Session {
 public:
  // Throws Failure(kUsage) when the key cannot be read. `signals` may be null.
  Session(SessionSettings settings, const StopSignals* signals, std::shared_ptr<Logger> log);

  bool is_standalone() const { return !settings_.coordinator; }
  // A lost process ends the run.
  bool has_single_epoch() const { return is_standalone() || settings_.single_epoch; }
  const std::string& job_uid() const { return settings_.job_uid; }
  // The UID that owns the output; empty: it follows from the flags, so that the next launch
  // resumes.
  std::string output_uid() const {
    const bool names_job = !settings_.single_epoch && !has_unnamed_job() && launch_uid().empty();
    return names_job ? settings_.job_uid : "";
  }
  // The UID that the agent has given to this launch of a job without a name; empty: none.
  std::string launch_uid() const {
    return settings_.job_uid.starts_with(kLaunchUidPrefix) ? settings_.job_uid : "";
  }
  bool has_unnamed_job() const { return settings_.job_uid == kUnnamedJob; }
  // Several launches of an agent may have the job's UID, so that it does not tell whether a launch
  // begins anew.
  bool has_uid_of_agent() const { return settings_.uid_of_agent; }
  const net::SecretKey& key() const;  // not in a standalone process
  bool tls() const { return settings_.tls; }
  // The address to listen at for the other workers: settings.transport_host, the address of
  // settings.interface or the local address of connections to the coordinator, in this order; and
  // settings.transport_port. Throws Failure(kPeerLost) if the coordinator cannot be reached within
  // join_timeout, Failure(kUsage) if there is no such interface.
  net::Address address() const;
  // Sets the address at which the other workers connect to this one. Call it before the first
  // join().
  void advertise_address(const net::Address& transport);

  // The instruction sets that this process can use, slowest first. Call it before the first join();
  // a later call takes effect at the next join().
  void set_isas(std::vector<std::string> isas);

  // Leaves the current membership epoch and joins the next one, whose instruction set a single
  // process chooses itself. nullopt: the job is finished. Throws Failure: kPeerLost (no epoch in
  // time), kUnsupported (refused), kReplaced (by a newer instance), the signal's code.
  std::optional<rendezvous::Assignment> join(std::int64_t last_checkpoint_step);
  // The job has had this membership epoch, of which the coordinator may not know: the next join()
  // waits for a later one.
  void raise_epoch(rendezvous::Epoch epoch);
  bool has_joined() const { return has_joined_; }  // a membership epoch, perhaps one that has ended
  // Sent with the next heartbeat; does not block.
  void report(const rendezvous::Progress& progress);

  bool epoch_ended() const { return epoch_cancel_token().signalled(); }
  const net::WakeUp& epoch_cancel_token() const;  // signalled once the epoch has ended
  void on_epoch_end(rendezvous::Client::EpochEndHandler handler);
  // True after a signal, or if the coordinator asks the members to end the epoch at a step boundary
  // because a worker joined. Workers see the request at different times, so they have to agree on
  // the step.
  bool stop_requested() const;
  std::optional<ExitCode> stopped() const;  // by a signal: the code to exit with
  std::string reason() const;               // why the epoch ended or must end

  // Waits in a failing operation. False: the epoch has ended, or a signal asks this process to
  // stop.
  bool sleep(Duration duration) const;

  // Reports that this worker is done. False: the epoch ended first; call join() again. An
  // unreachable coordinator is not an error, because the exit code reports the same.
  bool finish();
  // Tells the coordinator that this worker leaves, so that the others need not detect it.
  void leave(const std::string& reason);

 private:
  const SessionSettings settings_;
  const StopSignals* signals_;
  const std::shared_ptr<Logger> log_;
  std::optional<net::SecretKey> key_;
  std::unique_ptr<rendezvous::Client> client_;
  net::WakeUp never_cancelled_;  // for a standalone process
  rendezvous::Epoch standalone_epoch_ = 0;
  bool has_joined_ = false;
  std::string address_;
  std::vector<std::string> isas_;
};

}  // namespace tilewright::elastic
