#include "controller/manager/rendezvous_hub.h"

#include <poll.h>

#include <utility>

#include "controller/reconcile/observe_rendezvous.h"

namespace tilewright::manager {

Result<std::unique_ptr<RendezvousHub>> RendezvousHub::start(const net::Address& listen,
                                                            Changed changed,
                                                            std::shared_ptr<Logger> log) {
  rendezvous::Server::Options options;
  options.listen = listen;
  auto server = rendezvous::Server::start(options, std::move(log));
  if (!server) return server.error();
  return std::unique_ptr<RendezvousHub>(
      new RendezvousHub(std::move(server).value(), std::move(changed)));
}

RendezvousHub::RendezvousHub(std::unique_ptr<rendezvous::Server> server, Changed changed)
    : server_(std::move(server)), changed_(std::move(changed)), thread_([this] { listen(); }) {}

RendezvousHub::~RendezvousHub() {
  stop_.signal();
  thread_.join();
}

void RendezvousHub::listen() {
  constexpr std::chrono::hours kLong{1};
  while (true) {
    const net::Ready ready =
        net::wait_ready(server_->changes().fd(), POLLIN, net::within(kLong, &stop_));
    if (ready == net::Ready::kCancelled) return;
    for (const std::string& uid : server_->take_changed()) tell(uid);
  }
}

void RendezvousHub::tell(const std::string& uid) {
  std::string key;
  News news = News::kHeartbeat;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(uid);
    const auto snapshot = found == open_.end() ? std::nullopt : server_->snapshot(uid);
    if (!snapshot) return;
    key = found->second.key;
    const auto now = std::tuple(snapshot->latest, snapshot->phase, snapshot->members.size(),
                                snapshot->number_of_losses);
    if (std::exchange(found->second.seen, now) != now) news = News::kMembership;
  }
  changed_(key, news);
}

Status RendezvousHub::expect(const std::string& uid, const reconcile::Membership& membership,
                             const std::function<Job()>& make) {
  const std::lock_guard lock(mutex_);
  auto open = open_.find(uid);
  if (open == open_.end()) {
    Job job = make();
    rendezvous::JobSpec spec{uid, std::move(job.secret), {}, job.floor, job.tls};
    spec.settings.min_world = membership.min_world;
    spec.settings.max_world = membership.max_world;
    spec.settings.expected = membership.expected;
    const Duration heartbeat_timeout = spec.settings.heartbeat_timeout;
    if (Status added = server_->add_job(std::move(spec)); !added) return added;
    // What is expected now is told below, its patience with it.
    open = open_
               .emplace(uid, Open{std::move(job.key),
                                  job.global_batch,
                                  heartbeat_timeout,
                                  monotonic_now(),
                                  {},
                                  {}})
               .first;
    open->second.told.expected = 0;
  }
  if (open->second.told != membership) {
    const Status told = server_->expect(uid, {membership.min_world, membership.max_world,
                                              membership.expected, membership.patience});
    if (!told) return told;
    open->second.told = membership;
  }
  return {};
}

void RendezvousHub::close(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  if (open_.erase(uid) > 0) server_->remove_job(uid, "the job is not running any more");
}

std::optional<reconcile::Progress> RendezvousHub::progress(
    const std::string& uid, const std::vector<reconcile::Worker>& workers, WallTime now,
    MonotonicTime clock) const {
  const std::lock_guard lock(mutex_);
  const auto open = open_.find(uid);
  if (open == open_.end()) return std::nullopt;
  const auto snapshot = server_->snapshot(uid);
  if (!snapshot) return std::nullopt;
  reconcile::Progress progress =
      reconcile::view_of(*snapshot, std::nullopt, open->second.global_batch).progress;
  reconcile::mark_silent(workers, clock - open->second.since, open->second.heartbeat_timeout, now,
                         progress);
  return progress;
}

std::size_t RendezvousHub::members() const {
  const std::lock_guard lock(mutex_);
  std::size_t members = 0;
  for (const auto& [uid, open] : open_) {
    if (const auto snapshot = server_->snapshot(uid)) members += snapshot->members.size();
  }
  return members;
}

}  // namespace tilewright::manager
