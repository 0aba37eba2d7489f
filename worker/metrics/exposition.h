// What Prometheus reads from a worker: GET /metrics, served by prometheus-cpp's own HTTP server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/net/address.h"
#include "common/rendezvous/types.h"

namespace tilewright::metrics {

// Labels of every series.
struct Identity {
  std::string trainjob;
  int worker = 0;   // index
  int process = 0;  // of that worker, LOCAL_RANK
};

// The part of an epoch that a progress report does not say.
struct Place {
  rendezvous::Epoch epoch = 0;
  int rank = 0;
  int world = 1;
};

// Figures of the whole job (loss, examples and tokens a second, step) are the same on every worker:
// sum none of them. All functions may be called from any thread and never wait for a scrape.
class Exposition {
 public:
  // Serves until the object goes, at a numeric address. Errors carry kUsage: an address that cannot
  // be listened on.
  static Result<std::unique_ptr<Exposition>> serve(const net::Address& address,
                                                   const Identity& identity);
  ~Exposition();
  Exposition(const Exposition&) = delete;
  Exposition& operator=(const Exposition&) = delete;

  std::uint16_t port() const;  // the one that was picked, for port 0
  // A new membership epoch has begun; from the second on it counts as a restart.
  void begin_epoch(const Place& place);
  void set(const rendezvous::Progress& progress);

 private:
  class Impl;
  explicit Exposition(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::metrics
