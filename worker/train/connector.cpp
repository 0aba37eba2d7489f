#include "worker/train/connector.h"

#include <fmt/format.h>

#include "worker/collectives/mpi_transport.h"
#include "worker/collectives/streams.h"

namespace tilewright::train {
namespace {

// The workers of a membership epoch are running when it begins, so connecting is fast.
constexpr std::chrono::seconds kConnectTimeout{30};

runtime::Isa isa_of(const rendezvous::Assignment& assignment) {
  const std::optional<runtime::Isa> isa = runtime::parse_isa(assignment.isa);
  if (isa) return *isa;
  throw Failure(
      ExitCode::kPeerLost,
      fmt::format("the coordinator assigned the unknown instruction set \"{}\"", assignment.isa));
}

}  // namespace

Connector::Connector(elastic::Session& session, collectives::MpiPort* mpi, std::string_view backend,
                     int streams, Logger& log)
    : session_(session),
      mpi_(mpi),
      shared_memory_(backend == "shm"   ? collectives::SharedMemory::kRequired
                     : backend == "tcp" ? collectives::SharedMemory::kNever
                                        : collectives::SharedMemory::kIfPossible),
      streams_(streams),
      log_(log) {
  if (session.is_standalone()) return;
  listener_.emplace(net::Listener::bind(session.address()).or_throw());
  session.advertise_address(listener_->local_address());
}

std::unique_ptr<collectives::Mesh> Connector::build_mesh(const collectives::MeshConfig& config) {
  const MonotonicTime deadline = monotonic_now() + kConnectTimeout;
  const net::WakeUp* const cancel = &session_.epoch_cancel_token();
  auto mesh = collectives::build_mesh(*listener_, config, session_.key(), deadline, cancel);
  const AbortOnEpochEnd abort(session_, *mesh);
  collectives::open_streams(*mesh, streams_, *listener_, session_.key(), deadline, cancel);
  if (config.rank == 0 && mesh->world() > 1) {
    log_.info(
        "gradients are exchanged {}{}", mesh->links(),
        mesh->streams() > 1 ? fmt::format(", by {} threads per process", mesh->streams()) : "");
  }
  return mesh;
}

void Connector::add_background(collectives::Mesh& mesh) {
  if (mpi_ != nullptr) return;
  collectives::add_background(mesh, *listener_, session_.key(), monotonic_now() + kConnectTimeout,
                              &session_.epoch_cancel_token());
}

std::unique_ptr<collectives::Mesh> Connector::connect_peers(const collectives::MeshConfig& config) {
  if (mpi_ == nullptr) return build_mesh(config);
  const auto world = static_cast<int>(config.peers.size());
  if (mpi_->rank() != config.rank || mpi_->world() != world) {
    throw Failure(ExitCode::kInternal,
                  fmt::format("rank {} of {} in the membership epoch, rank {} of {} in MPI",
                              config.rank, world, mpi_->rank(), mpi_->world()));
  }
  if (config.rank == 0) log_.info("gradients are exchanged through {}", mpi_->library());
  std::unique_ptr<collectives::Transport> links =
      std::make_unique<collectives::MpiTransport>(*mpi_);
  return std::make_unique<collectives::Mesh>(config, std::move(links));
}

std::optional<Connection> Connector::connect(
    std::int64_t last_checkpoint_step,
    const std::function<void(rendezvous::Epoch)>& on_assignment) {
  for (;;) {
    const std::optional<rendezvous::Assignment> assignment = session_.join(last_checkpoint_step);
    if (!assignment) return std::nullopt;
    const MonotonicTime assigned = monotonic_now();
    const runtime::Isa isa = isa_of(*assignment);
    on_assignment(assignment->epoch);
    if (session_.is_standalone()) {
      return Connection{
          collectives::Mesh::single_rank(), isa, assignment->resume_step, {}, assigned};
    }
    log_.log(assignment->rank == 0 ? spdlog::level::info : spdlog::level::debug,
             "membership epoch {}: rank {} of {}", assignment->epoch, assignment->rank,
             assignment->world);
    collectives::MeshConfig config;
    config.job_uid = session_.job_uid();
    config.epoch = assignment->epoch;
    config.rank = assignment->rank;
    config.tls = session_.tls();
    config.shared_memory = shared_memory_;
    std::vector<rendezvous::MemberId> members;
    for (const rendezvous::Peer& peer : assignment->peers) {
      members.push_back(peer.who);
      config.peers.push_back({net::parse_address(peer.address).or_throw(), peer.who.instance_id});
    }
    try {
      return Connection{connect_peers(config), isa, assignment->resume_step, std::move(members),
                        assigned};
    } catch (const Failure& failure) {
      if (const auto code = session_.stopped()) throw Failure(*code, "stopped by a signal");
      if (failure.code() != ExitCode::kPeerLost || session_.has_single_epoch()) throw;
      log_.warn("membership epoch {} ended before it began: {}", config.epoch, failure.what());
    }
  }
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the Connection owns the Mesh
}

}  // namespace tilewright::train
