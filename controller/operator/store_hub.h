// The TCPStores of PyTorchJobs, for the rendezvous of torchrun's agents: one store for each job,
// all on one port. Thread-safe.
//
// The protocol has no authentication, so the source address of a connection decides: the pods of a
// job reach the job's store, and other clients none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "common/base/log.h"
#include "common/net/address.h"
#include "common/tcpstore/server.h"
#include "controller/policy/observed.h"

namespace tilewright::controller {

// PyTorch's client does not reconnect: agents that used the stores of another leader end, with an
// exit code of 1. Whether this explains the end of a worker whose agent used a store, if the
// stores of this leader opened at this time.
bool ended_with_its_store(const policy::Worker& worker, WallTime opened);

class StoreHub {
 public:
  // Errors carry kUsage: cannot listen on the address.
  static Result<std::unique_ptr<StoreHub>> start(const tcpstore::Server::Options& options,
                                                 std::shared_ptr<Logger> log);
  static Result<std::unique_ptr<StoreHub>> start(const net::Address& listen,
                                                 std::shared_ptr<Logger> log);
  StoreHub(const StoreHub&) = delete;
  StoreHub& operator=(const StoreHub&) = delete;

  const net::Address& address() const { return server_->address(); }
  WallTime opened() const { return opened_; }

  // Sets the addresses of the job's pods. Connections from addresses that it had before are closed.
  // An address that two jobs have belongs to neither. Text that is no IP address is ignored.
  void serve(const std::string& job_uid, const std::set<std::string>& pod_ips);
  // Closes the connections of the job's pods; its keys are discarded.
  void close(const std::string& job_uid) { serve(job_uid, {}); }

  // The host:port for new pods; empty: they cannot reach the stores.
  void set_address_for_pods(std::string address);
  std::string address_for_pods() const;

  // Of all jobs.
  std::size_t connections() const;
  // The connections that the server has rejected, by reason.
  std::map<std::string, std::uint64_t> rejections() const { return server_->rejections(); }

 private:
  explicit StoreHub(WallTime opened) : opened_(opened) {}
  std::optional<tcpstore::StoreId> store_for(const net::Address& peer) const;

  const WallTime opened_;
  mutable std::mutex mutex_;
  std::map<std::string, std::set<std::string>> addresses_;  // by job UID
  std::map<std::string, std::set<std::string>> jobs_;       // by address
  std::string address_for_pods_;
  std::unique_ptr<tcpstore::Server> server_;  // last: its thread uses the others
};

}  // namespace tilewright::controller
