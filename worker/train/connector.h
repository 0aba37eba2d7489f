// Joins the membership epochs of a training and connects to their workers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "common/net/connect.h"
#include "worker/collectives/mesh.h"
#include "worker/collectives/mpi_port.h"
#include "worker/elastic/session.h"
#include "worker/runtime/cpu.h"

namespace tilewright::train {

// A membership epoch of this worker.
struct Connection {
  std::unique_ptr<collectives::Mesh> mesh;
  runtime::Isa isa;                           // that all its workers use
  std::int64_t resume_step = -1;              // see rendezvous::Assignment
  std::vector<rendezvous::MemberId> members;  // by rank; empty in a single process
  MonotonicTime assigned;                     // when the coordinator had formed the epoch
};

// Uses one listening socket for all membership epochs.
class Connector {
 public:
  // `mpi`: see RunOptions. `backend`: --ddp_backend.
  Connector(elastic::Session& session, collectives::MpiPort* mpi, std::string_view backend,
            Logger& log);
  // Waits for the next membership epoch and connects its workers. nullopt: the job is finished.
  // Calls `on_assignment` with the number of each epoch before it connects.
  std::optional<Connection> connect(std::int64_t last_checkpoint_step,
                                    const std::function<void(rendezvous::Epoch)>& on_assignment);

 private:
  std::unique_ptr<collectives::Mesh> connect_peers(const collectives::MeshConfig& config);

  elastic::Session& session_;
  collectives::MpiPort* mpi_;
  collectives::SharedMemory shared_memory_;
  Logger& log_;
  std::optional<net::Listener> listener_;
};

}  // namespace tilewright::train
