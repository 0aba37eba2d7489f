// Serves a worker's Prometheus metrics at GET /metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/net/address.h"
#include "common/rendezvous/types.h"

namespace tilewright::metrics {

// The labels of every series.
struct Identity {
  std::string trainjob;
  int worker = 0;   // index
  int process = 0;  // LOCAL_RANK
};

// Membership data that a progress report does not contain.
struct EpochMembership {
  rendezvous::Epoch epoch = 0;
  int rank = 0;
  int world = 1;
};

// Metrics of the whole job (step, loss, examples and tokens per second) have the same value on
// every worker; do not sum them over workers. All functions are thread-safe and do not wait for a
// scrape.
class Exposition {
 public:
  // Serves at a numeric address until the object is destroyed. An Error with kUsage if the address
  // cannot be used.
  static Result<std::unique_ptr<Exposition>> serve(const net::Address& address,
                                                   const Identity& identity);
  ~Exposition();
  Exposition(const Exposition&) = delete;
  Exposition& operator=(const Exposition&) = delete;

  std::uint16_t port() const;  // the actual port, also if port 0 was requested
  // Records a new membership epoch. Every epoch after the first counts as a
  // membership change.
  void begin_epoch(const EpochMembership& membership);
  void set(const rendezvous::Progress& progress);

 private:
  class Impl;
  explicit Exposition(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::metrics
