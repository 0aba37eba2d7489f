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

// Aborts the waits of the mesh when the membership epoch ends.
class AbortOnEpochEnd {
 public:
  AbortOnEpochEnd(elastic::Session& session, collectives::Mesh& mesh) : session_(session) {
    session.on_epoch_end([&mesh](const std::string& reason) { mesh.abort(reason); });
  }
  ~AbortOnEpochEnd() { session_.on_epoch_end({}); }
  AbortOnEpochEnd(const AbortOnEpochEnd&) = delete;
  AbortOnEpochEnd& operator=(const AbortOnEpochEnd&) = delete;

 private:
  elastic::Session& session_;
};

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
  // `mpi`: see RunOptions. `backend`: --ddp_backend. `streams`: that this process wants, see
  // collectives/streams.h.
  Connector(elastic::Session& session, collectives::MpiPort* mpi, std::string_view backend,
            int streams, Logger& log);
  // Waits for the next membership epoch and connects its workers. nullopt: the job is finished.
  // Calls `on_assignment` with the number of each epoch before it connects.
  std::optional<Connection> connect(std::int64_t last_checkpoint_step,
                                    const std::function<void(rendezvous::Epoch)>& on_assignment);
  // Connects the workers of a mesh of connect() again, as Mesh::background(), unless an MPI library
  // connects them. Throws Failure(kPeerLost). Collective.
  void add_background(collectives::Mesh& mesh);

 private:
  std::unique_ptr<collectives::Mesh> connect_peers(const collectives::MeshConfig& config);
  std::unique_ptr<collectives::Mesh> build_mesh(const collectives::MeshConfig& config);

  elastic::Session& session_;
  collectives::MpiPort* mpi_;
  collectives::SharedMemory shared_memory_;
  int streams_;
  Logger& log_;
  std::optional<net::Listener> listener_;
};

}  // namespace tilewright::train
