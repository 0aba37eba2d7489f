#include "controller/client/leader_election.h"

#include <algorithm>
#include <utility>

#include "common/json/members.h"

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
    const Elector::Action action = elector_.next(monotonic_now(), wall_now());
    update_leadership();
    if (action.kind == Elector::Action::Kind::kWait) {
      net::sleep_until({action.until, &stop_});
    } else {
      perform(action);
    }
    update_leadership();
  }
  release();
}

void LeaderElection::perform(const Elector::Action& action) {
  if (action.kind != Elector::Action::Kind::kRead) return write(action);
  const auto lease = client_.get(resource::leases(), options_.namespace_name, options_.lease_name,
                                 {action.until, &stop_});
  if (lease) {
    lease_ = *lease;
    elector_.on_read(monotonic_now(), decode_lease(lease_),
                     metadata_string(lease_, "resourceVersion"));
  } else if (lease.is(ErrorKind::kNotFound)) {
    lease_ = nullptr;
    elector_.on_absent(monotonic_now());
  } else {
    if (!lease.is(ErrorKind::kCancelled)) logger_->warn("{}", lease.error().sentence());
    elector_.on_failed(monotonic_now(), Elector::FailureKind::kOther);
  }
}

void LeaderElection::write(const Elector::Action& action) {
  const MonotonicTime sent = monotonic_now();
  const bool creating = action.kind == Elector::Action::Kind::kCreate;
  nlohmann::json lease = creating ? nlohmann::json() : lease_;
  if (lease.is_null()) {
    lease = {{"apiVersion", resource::leases().api_version()}, {"kind", resource::leases().kind}};
  }
  lease["metadata"]["name"] = options_.lease_name;
  lease["metadata"]["namespace"] = options_.namespace_name;
  if (!creating) lease["metadata"]["resourceVersion"] = action.resource_version;
  encode_lease(action.record, lease);
  const net::Wait wait{action.until, &stop_};
  auto written =
      creating ? client_.create(unfenced_, resource::leases(), options_.namespace_name, lease, wait)
               : client_.update(unfenced_, resource::leases(), lease, wait);
  const MonotonicTime now = monotonic_now();
  if (written) {
    lease_ = std::move(written).value();
    // `sent` is the start of the first attempt, so retries within the call shorten the validity.
    elector_.on_written(sent, now, action.record, metadata_string(lease_, "resourceVersion"));
    return;
  }
  const bool conflict = written.is(ErrorKind::kConflict) || written.is(ErrorKind::kAlreadyExists) ||
                        written.is(ErrorKind::kNotFound);
  if (!conflict && !written.is(ErrorKind::kCancelled)) {
    logger_->warn("{}", written.error().sentence());
  }
  elector_.on_failed(now,
                     conflict ? Elector::FailureKind::kConflict : Elector::FailureKind::kOther);
}

void LeaderElection::update_leadership() {
  const MonotonicTime now = monotonic_now();
  const bool leading = elector_.leading(now);
  // A guard that expired before the renewal cannot be extended: the renewal begins a new session.
  if (guard_ && (!leading || !guard_->extend(now, elector_.valid_until()))) {
    guard_->revoke();
    end_session();
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

// While the guard is not revoked, pending writes can complete in stopped().
void LeaderElection::end_session() {
  logger_->info("no longer the leader");
  callbacks_.stopped();
  guard_->revoke();
  guard_.reset();
}

void LeaderElection::release() {
  if (!guard_) return;
  end_session();
  const auto action = elector_.release(monotonic_now(), wall_now());
  if (!action) return;
  // Limit the time for the release, because the lease expires anyway.
  const net::Wait wait{std::min(action->until, monotonic_now() + std::chrono::seconds(3))};
  encode_lease(action->record, lease_);
  lease_["metadata"]["resourceVersion"] = action->resource_version;
  auto released = client_.update(unfenced_, resource::leases(), lease_, wait);
  if (released.is(ErrorKind::kConflict)) {
    // stop() may have interrupted a renewal that the server had already applied.
    auto lease =
        client_.get(resource::leases(), options_.namespace_name, options_.lease_name, wait);
    if (!lease || decode_lease(*lease).holder != options_.elector.identity) return;
    encode_lease(action->record, *lease);
    released = client_.update(unfenced_, resource::leases(), *lease, wait);
  }
  if (!released) logger_->warn("{}", released.error().sentence());
}

}  // namespace tilewright::kube
