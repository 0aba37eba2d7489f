#include "controller/local/coordinator.h"

#include <algorithm>
#include <utility>

#include "common/net/address.h"
#include "common/rendezvous/server.h"
#include "controller/policy/observe_rendezvous.h"

namespace tilewright::local {
namespace {

class RendezvousCoordinator final : public Coordinator {
 public:
  RendezvousCoordinator(CoordinatorOptions options, net::SecretKey key,
                        std::unique_ptr<rendezvous::Server> server)
      : options_(std::move(options)),
        key_(std::move(key)),
        server_(std::move(server)),
        highest_epoch_(options_.min_epoch),
        isa_(options_.isa) {}

  std::string endpoint() const override { return net::to_string(server_->address()); }

  Status expect(const policy::Membership& membership) override {
    if (!open_) {
      rendezvous::JobSpec spec{options_.job_uid, key_.clone(),           {},  highest_epoch_,
                               options_.tls,     last_checkpoint_step(), isa_};
      spec.settings.exact = options_.exact;
      if (options_.heartbeat_timeout) spec.settings.heartbeat_timeout = *options_.heartbeat_timeout;
      spec.settings.min_world = membership.min_world;
      spec.settings.max_world = membership.max_world;
      spec.settings.expected = membership.expected;
      if (Status added = server_->add_job(std::move(spec)); !added) return added;
      open_ = true;
    }
    if (last_membership_ != membership) {
      if (Status sent =
              server_->expect(options_.job_uid, {membership.min_world, membership.max_world,
                                                 membership.expected, membership.timeout});
          !sent)
        return sent;
      last_membership_ = membership;
    }
    return {};
  }

  void close() override {
    if (!open_) return;
    save_progress();
    open_ = false;
    server_->remove_job(options_.job_uid, "the job is no longer running");
    last_membership_.reset();
  }

  void worker_exited(int index) override { server_->worker_exited(options_.job_uid, index); }

  std::optional<policy::RendezvousView> progress() const override {
    const auto snapshot = open_ ? server_->snapshot(options_.job_uid) : std::nullopt;
    if (!snapshot) return std::nullopt;
    // Between epochs and after the last one, the view has the last reported progress.
    return policy::view_of(*snapshot, last_progress_, options_.global_batch);
  }

  int changes_fd() const override { return server_->changes().fd(); }
  void take_changes() override {
    server_->take_changed();
    if (open_) save_progress();
  }

 private:
  std::int64_t last_checkpoint_step() const {
    const std::int64_t reported = last_progress_ ? last_progress_->last_checkpoint_step : -1;
    return std::max(options_.last_checkpoint_step, reported);
  }

  // Keeps what remove_job() discards.
  void save_progress() {
    const auto snapshot = server_->snapshot(options_.job_uid);
    if (snapshot->progress) last_progress_ = snapshot->progress;
    highest_epoch_ = std::max(highest_epoch_, snapshot->latest_epoch);
    isa_ = snapshot->isa;
  }

  const CoordinatorOptions options_;
  net::SecretKey key_;
  std::unique_ptr<rendezvous::Server> server_;
  bool open_ = false;
  std::optional<policy::Membership> last_membership_;
  rendezvous::Epoch highest_epoch_;  // new epochs are higher
  std::string isa_;                  // of the latest epoch
  std::optional<rendezvous::Progress> last_progress_;
};

}  // namespace

Result<std::unique_ptr<Coordinator>> serve_rendezvous(CoordinatorOptions options,
                                                      net::SecretKey key,
                                                      std::shared_ptr<Logger> log) {
  const rendezvous::Server::Options server_options;
  auto server = rendezvous::Server::start(server_options, std::move(log));
  if (!server) return server.error();
  return std::unique_ptr<Coordinator>(std::make_unique<RendezvousCoordinator>(
      std::move(options), std::move(key), std::move(server).value()));
}

}  // namespace tilewright::local
