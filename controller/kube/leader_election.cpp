// Carries out what the elector says, and tells the manager.
#include "controller/kube/leader_election.h"

#include <algorithm>
#include <utility>

#include "controller/api/json_members.h"

namespace tilewright::kube {

LeaderElection::LeaderElection(Client& client, ElectionOptions options, ElectionCallbacks callbacks,
                               std::shared_ptr<Logger> logger)
    : client_(client),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      logger_(std::move(logger)),
      elector_(options_.elector, options_.jitter) {}

LeaderElection::~LeaderElection() { stop(); }

void LeaderElection::start() {
  thread_ = std::thread([this] { run(); });
}

void LeaderElection::stop() {
  stop_.signal();
  if (thread_.joinable()) thread_.join();
}

void LeaderElection::run() {
  while (!stop_.signalled()) {
    const Elector::Act act = elector_.next(monotonic_now(), wall_now());
    follow();
    if (act.kind == Elector::Act::Kind::kWait) {
      net::wait_ready(-1, 0, {act.until, &stop_});
    } else {
      perform(act);
    }
    follow();
  }
  release();
}

void LeaderElection::perform(const Elector::Act& act) {
  if (act.kind != Elector::Act::Kind::kRead) return write(act);
  const auto lease = client_.get(resource::leases(), options_.namespace_name, options_.lease_name,
                                 {act.until, &stop_});
  if (lease) {
    lease_ = *lease;
    elector_.read(monotonic_now(), decode_lease(lease_),
                  api::metadata_text(lease_, "resourceVersion"));
  } else if (lease.is(Problem::kNotFound)) {
    lease_ = nullptr;
    elector_.absent(monotonic_now());
  } else {
    if (!lease.is(Problem::kCancelled)) logger_->warn("{}", lease.error().sentence());
    elector_.failed(monotonic_now(), false);
  }
}

void LeaderElection::write(const Elector::Act& act) {
  const MonotonicTime sent = monotonic_now();
  const bool creating = act.kind == Elector::Act::Kind::kCreate;
  nlohmann::json lease = creating ? nlohmann::json() : lease_;
  if (lease.is_null()) {
    lease = {{"apiVersion", resource::leases().api_version()}, {"kind", resource::leases().kind}};
  }
  lease["metadata"]["name"] = options_.lease_name;
  lease["metadata"]["namespace"] = options_.namespace_name;
  if (!creating) lease["metadata"]["resourceVersion"] = act.resource_version;
  encode_lease(act.record, lease);
  const net::Wait wait{act.until, &stop_};
  auto answer =
      creating ? client_.create(unfenced_, resource::leases(), options_.namespace_name, lease, wait)
               : client_.update(unfenced_, resource::leases(), lease, wait);
  const MonotonicTime now = monotonic_now();
  if (answer) {
    lease_ = std::move(answer).value();
    // `sent` is the first attempt's: a later one of the same call only makes the term shorter.
    elector_.written(sent, now, act.record, api::metadata_text(lease_, "resourceVersion"));
    return;
  }
  const bool conflict = answer.is(Problem::kConflict) || answer.is(Problem::kAlreadyExists) ||
                        answer.is(Problem::kNotFound);
  if (!conflict && !answer.is(Problem::kCancelled)) {
    logger_->warn("{}", answer.error().sentence());
  }
  elector_.failed(now, conflict);
}

void LeaderElection::follow() {
  const MonotonicTime now = monotonic_now();
  const bool leading = elector_.leading(now);
  // A guard that had run out before the renewal came never opens again: that is a new term.
  if (guard_ && (!leading || !guard_->extend(now, elector_.valid_until()))) {
    guard_->revoke();
    end_term();
  }
  if (elector_.holder() != holder_) {
    holder_ = elector_.holder();
    if (callbacks_.holder_changed) callbacks_.holder_changed(holder_);
  }
  if (leading && !guard_) {
    guard_ = std::make_shared<WriteGuard>(elector_.valid_until());
    logger_->info("became the leader as {}", options_.elector.identity);
    callbacks_.started(guard_);
  }
}

// A guard that is not revoked yet lets what waits be written meanwhile.
void LeaderElection::end_term() {
  logger_->info("no longer the leader");
  callbacks_.stopped();
  guard_->revoke();
  guard_.reset();
}

void LeaderElection::release() {
  if (!guard_) return;
  end_term();
  const auto act = elector_.release(monotonic_now(), wall_now());
  if (!act) return;
  // A stop does not wait long for it: the lease ends by itself.
  const net::Wait wait{std::min(act->until, monotonic_now() + std::chrono::seconds(3))};
  encode_lease(act->record, lease_);
  lease_["metadata"]["resourceVersion"] = act->resource_version;
  auto released = client_.update(unfenced_, resource::leases(), lease_, wait);
  if (released.is(Problem::kConflict)) {
    // The stop may have cut off a renewal that was done all the same.
    auto lease =
        client_.get(resource::leases(), options_.namespace_name, options_.lease_name, wait);
    if (!lease || decode_lease(*lease).holder != options_.elector.identity) return;
    encode_lease(act->record, *lease);
    released = client_.update(unfenced_, resource::leases(), *lease, wait);
  }
  if (!released) logger_->warn("{}", released.error().sentence());
}

}  // namespace tilewright::kube
