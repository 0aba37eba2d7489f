#include "controller/local/coordinator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/net/address.h"
#include "common/rendezvous/server.h"

namespace tilewright::local {
namespace {

// What a worker reports beside its metrics; all others are results for people to read.
constexpr const char* kGflops = "gflops";
constexpr const char* kPeakGflops = "peak_gflops";
constexpr const char* kEtaSeconds = "eta_seconds";
constexpr const char* kGradNorm = "grad_norm";

double take_out(std::map<std::string, double>& metrics, const char* name) {
  const auto found = metrics.extract(name);
  return found ? found.mapped() : 0;
}

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

std::optional<std::int64_t> eta(const rendezvous::Progress& progress, std::int64_t global_batch) {
  if (!(progress.examples_per_second > 0) || progress.total_steps <= 0) return std::nullopt;
  const std::int64_t left = std::max<std::int64_t>(progress.total_steps - progress.step, 0);
  return std::llround(static_cast<double>(left * global_batch) / progress.examples_per_second);
}

// What rank 0 said last; the others compute the same steps. Nothing if it has not said anything
// yet.
const rendezvous::Progress* spokesman(const rendezvous::Snapshot& snapshot) {
  for (const rendezvous::MemberView& member : snapshot.members) {
    if (member.rank == 0 && member.progress.total_steps > 0) return &member.progress;
  }
  return nullptr;
}

class Served final : public Coordinator {
 public:
  Served(std::string job_uid, net::SecretKey key, std::int64_t global_batch,
         std::unique_ptr<rendezvous::Server> server)
      : job_uid_(std::move(job_uid)),
        key_(std::move(key)),
        global_batch_(global_batch),
        server_(std::move(server)) {}

  std::string endpoint() const override { return net::to_string(server_->address()); }

  Status expect(const reconcile::Membership& membership) override {
    if (!open_) {
      rendezvous::JobSpec spec{job_uid_, key_.clone(), {}, 0};
      spec.settings.min_world = membership.min_world;
      spec.settings.max_world = membership.max_world;
      spec.settings.expected = membership.expected;
      if (Status added = server_->add_job(std::move(spec)); !added) return added;
      open_ = true;
    }
    if (told_ != membership) {
      server_->expect(job_uid_, membership.expected, membership.patience);
      told_ = membership;
    }
    return {};
  }

  void close() override {
    if (!std::exchange(open_, false)) return;
    server_->remove_job(job_uid_, "the job is not running any more");
    told_.reset();
  }

  std::optional<LiveProgress> progress() const override {
    const auto snapshot = open_ ? server_->snapshot(job_uid_) : std::nullopt;
    if (!snapshot) return std::nullopt;
    LiveProgress live;
    // Between two epochs, and after the last one's end, what was known before still holds.
    const rendezvous::Progress* now = spokesman(*snapshot);
    if (now != nullptr || last_) take(now != nullptr ? *now : *last_, live);
    live.progress.rendezvous_epoch = snapshot->epoch;
    live.progress.world = snapshot->world;
    for (const rendezvous::MemberView& member : snapshot->members) {
      reconcile::Member& view = live.progress.members[member.who.seat.index];
      if (member.rank >= 0 && (view.rank < 0 || member.rank < view.rank)) view.rank = member.rank;
      view.finished = member.standing == rendezvous::Standing::kFinished;
    }
    return live;
  }

  int changes_fd() const override { return server_->changes().fd(); }
  void take_changes() override {
    server_->take_changed();
    const auto snapshot = server_->snapshot(job_uid_);
    if (!snapshot) return;
    if (const rendezvous::Progress* now = spokesman(*snapshot)) last_ = *now;
  }

 private:
  void take(const rendezvous::Progress& from, LiveProgress& live) const {
    reconcile::Progress& to = live.progress;
    to.step = from.step;
    to.total_steps = from.total_steps;
    to.epoch = from.epoch_of_data;
    to.loss = finite(from.loss);
    to.learning_rate = finite(from.learning_rate);
    to.examples_per_second = from.examples_per_second;
    to.tokens_per_second = from.tokens_per_second;
    to.eta_seconds = eta(from, global_batch_);
    to.last_checkpoint_step = from.last_checkpoint_step;
    to.metrics = from.metrics;
    live.gflops_per_second = take_out(to.metrics, kGflops);
    live.peak_gflops = take_out(to.metrics, kPeakGflops);
    take_out(to.metrics, kEtaSeconds);
    take_out(to.metrics, kGradNorm);
    live.phase = from.phase;
  }

  std::string job_uid_;
  net::SecretKey key_;
  std::int64_t global_batch_;
  std::unique_ptr<rendezvous::Server> server_;
  bool open_ = false;
  std::optional<reconcile::Membership> told_;
  std::optional<rendezvous::Progress> last_;
};

}  // namespace

Result<std::unique_ptr<Coordinator>> serve_rendezvous(const std::string& job_uid,
                                                      net::SecretKey key, std::int64_t global_batch,
                                                      std::shared_ptr<Logger> log) {
  auto server = rendezvous::Server::start({}, std::move(log));
  if (!server) return server.error();
  return std::unique_ptr<Coordinator>(
      std::make_unique<Served>(job_uid, std::move(key), global_batch, std::move(server).value()));
}

}  // namespace tilewright::local
