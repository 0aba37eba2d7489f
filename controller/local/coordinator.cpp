#include "controller/local/coordinator.h"

#include <algorithm>
#include <utility>

#include "common/net/address.h"
#include "common/rendezvous/server.h"
#include "controller/reconcile/observe_rendezvous.h"

namespace tilewright::local {
namespace {

class Served final : public Coordinator {
 public:
  Served(CoordinatorOptions options, net::SecretKey key, std::unique_ptr<rendezvous::Server> server)
      : options_(std::move(options)),
        key_(std::move(key)),
        server_(std::move(server)),
        latest_(options_.floor) {}

  std::string endpoint() const override { return net::to_string(server_->address()); }

  Status expect(const reconcile::Membership& membership) override {
    if (!open_) {
      rendezvous::JobSpec spec{options_.job_uid, key_.clone(), {}, latest_, options_.tls};
      spec.settings.min_world = membership.min_world;
      spec.settings.max_world = membership.max_world;
      spec.settings.expected = membership.expected;
      if (Status added = server_->add_job(std::move(spec)); !added) return added;
      open_ = true;
    }
    if (told_ != membership) {
      const Status told = server_->expect(
          options_.job_uid,
          {membership.min_world, membership.max_world, membership.expected, membership.patience});
      if (!told) return told;
      told_ = membership;
    }
    return {};
  }

  void close() override {
    if (!open_) return;
    remember();
    open_ = false;
    server_->remove_job(options_.job_uid, "the job is not running any more");
    told_.reset();
  }

  std::optional<reconcile::RendezvousView> progress() const override {
    const auto snapshot = open_ ? server_->snapshot(options_.job_uid) : std::nullopt;
    if (!snapshot) return std::nullopt;
    // Between two epochs, and after the last one's end, what was known before still holds.
    return reconcile::view_of(*snapshot, last_, options_.global_batch);
  }

  int changes_fd() const override { return server_->changes().fd(); }
  void take_changes() override {
    server_->take_changed();
    if (open_) remember();
  }

 private:
  // What outlives the job's being open.
  void remember() {
    const auto snapshot = server_->snapshot(options_.job_uid);
    if (snapshot->progress) last_ = snapshot->progress;
    latest_ = std::max(latest_, snapshot->latest);
  }

  const CoordinatorOptions options_;
  net::SecretKey key_;
  std::unique_ptr<rendezvous::Server> server_;
  bool open_ = false;
  std::optional<reconcile::Membership> told_;
  rendezvous::Epoch latest_;  // the highest epoch so far
  std::optional<rendezvous::Progress> last_;
};

}  // namespace

Result<std::unique_ptr<Coordinator>> serve_rendezvous(CoordinatorOptions options,
                                                      net::SecretKey key,
                                                      std::shared_ptr<Logger> log) {
  auto server = rendezvous::Server::start({}, std::move(log));
  if (!server) return server.error();
  return std::unique_ptr<Coordinator>(
      std::make_unique<Served>(std::move(options), std::move(key), std::move(server).value()));
}

}  // namespace tilewright::local
