// The job that the processes of an MPI launcher form without an agent. Rank 0 serves the rendezvous
// in its process and, through the process manager, sends its address and a random secret to the
// others. The launcher restarts no process, so the run has one membership epoch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/rendezvous/server.h"
#include "worker/elastic/launcher.h"
#include "worker/elastic/process_manager.h"
#include "worker/elastic/session.h"

namespace tilewright::elastic {

class LaunchedGroup {
 public:
  struct Options {
    // How long all processes may take to start.
    Duration start_timeout = std::chrono::minutes(5);
    // How long rank 0 may be unreachable after that.
    Duration connect_timeout = std::chrono::minutes(1);
    // How long rank 0 serves processes that have not finished when it has.
    Duration finish_timeout = std::chrono::minutes(1);
    // How long another rank that fails waits for rank 0, which may be writing a checkpoint.
    Duration end_timeout = std::chrono::minutes(5);
    const net::WakeUp* cancel = nullptr;  // ends the waits; may be null
  };

  // `manager` may be null: then MASTER_ADDR names the host of rank 0, and on several hosts
  // TILEWRIGHT_JOB_KEY_FILE names the same secret. Throws Failure: kUsage for such a variable,
  // kPeerLost if not all processes start or rank 0 cannot be reached.
  LaunchedGroup(LaunchedProcess process, const GetVariable& environment,
                std::unique_ptr<ProcessManager> manager, const Options& options,
                std::shared_ptr<Logger> log);
  ~LaunchedGroup();

  const LaunchedProcess& process() const { return process_; }
  const SessionSettings& settings() const { return settings_; }

  // After the session has finished. Rank 0 waits for the other processes.
  void finish();
  // This process fails with `code`: asks the launcher to end the others. If rank 0 knows of it,
  // because this process was `in_epoch` and its session is closed, it waits for the end of rank 0.
  void abort(int code, bool in_epoch);

 private:
  void serve(const net::Address& listen, const net::SecretKey& key);
  std::vector<net::Address> own_addresses(const GetVariable& environment) const;
  std::shared_ptr<const net::SecretKey> key_of(const std::string& secret) const;
  net::SecretKey read_or_make_key(const GetVariable& environment);
  void share_through_manager(const GetVariable& environment);
  void use_master_address(const GetVariable& environment);
  void wait_for_end_of_rank0() const;
  net::Address first_reachable(const std::vector<net::Address>& addresses) const;

  const LaunchedProcess process_;
  const std::unique_ptr<ProcessManager> manager_;
  const Options options_;
  const std::shared_ptr<Logger> log_;
  SessionSettings settings_;
  std::unique_ptr<rendezvous::Server> server_;  // on rank 0
  std::filesystem::path local_key_file_;        // on one host without a manager
};

// The text that rank 0 shares: the job's UID, its secret in hexadecimal ("-": in the key file) and
// the addresses of its rendezvous, separated by commas. Without spaces, at most `max_bytes`.
std::string encode_rendezvous(const std::string& uid, const std::string& secret,
                              const std::vector<net::Address>& addresses, std::size_t max_bytes);
struct SharedRendezvous {
  std::string uid;
  std::string secret;
  std::vector<net::Address> addresses;  // at least one
};
// Error kPeerLost if the text has another form. The message does not contain the text.
Result<SharedRendezvous> decode_rendezvous(std::string_view text);

}  // namespace tilewright::elastic
