// Serves the TCPStores of many jobs on one port, in one thread. The address of a client selects its
// store, because the protocol has neither a name of the store nor a proof.
//
// A store exists while it has connections: when the last one closes, its keys are discarded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/address.h"
#include "common/rendezvous/limits.h"
#include "common/tcpstore/store.h"

namespace tilewright::tcpstore {

using StoreId = std::string;  // the UID of the job

// What a store holds and uses.
struct StoreUsage {
  std::size_t connections = 0;
  std::size_t buffered_bytes = 0;
  std::size_t entries = 0;  // Store::entries()
  std::size_t bytes = 0;    // Store::bytes()
  std::size_t waiting = 0;  // clients whose wait has not ended
};

class Server {
 public:
  // The store of a client with this address; nullopt: none yet. The server's thread calls it, with
  // a numeric host. It must not call the server or wait for one of its callers.
  using StoreFor = std::function<std::optional<StoreId>(const net::Address& peer)>;

  struct Options {
    net::Address listen{"127.0.0.1", 0};
    // A connection whose address has no store is held this long without being read: a pod may
    // connect before its owner knows the pod's address.
    Duration address_timeout = std::chrono::seconds(10);
    // Of all stores together; the connections without a store are the unauthenticated ones.
    rendezvous::Limits limits = {};
    std::size_t stored_bytes = 64 << 20;
    // Of one store. The requests above the rate wait; clients do not reconnect, so rejecting them
    // would end their processes. An agent of torchrun sends about 20 requests per second.
    rendezvous::JobLimits store_share = {
        .connections = 1024, .buffered_bytes = 32 << 20, .messages_per_second = 5000};
    StoreLimits store_limits = {};
    Clock* clock = &system_clock();  // for all deadlines
  };

  // Errors carry kUsage: cannot listen on the address.
  static Result<std::unique_ptr<Server>> start(const Options& options, StoreFor store_for,
                                               std::shared_ptr<Logger> log);
  // Closes all connections.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const net::Address& address() const;

  // Asks again for the stores of all connections. Those without one may now have one; those whose
  // address does not belong to their store any more are closed. Never blocks.
  void addresses_changed();

  std::map<StoreId, StoreUsage> stores() const;
  // The connections rejected so far, by reason (common/rendezvous/rejections.h).
  std::map<std::string, std::uint64_t> rejections() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::tcpstore
