#include "controller/operator/rendezvous_hub.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "controller/policy/job_state.h"
#include "controller/policy/observe_rendezvous.h"

namespace tilewright::controller {

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
    : server_(std::move(server)),
      changed_(std::move(changed)),
      thread_([this] { watch_changes(); }) {}

RendezvousHub::~RendezvousHub() {
  stop_.signal();
  thread_.join();
}

void RendezvousHub::watch_changes() {
  constexpr std::chrono::hours kLong{1};
  while (true) {
    const net::Ready ready =
        net::wait_ready(server_->changes().fd(), POLLIN, net::within(kLong, &stop_));
    if (ready == net::Ready::kCancelled) return;
    for (const std::string& uid : server_->take_changed()) notify(uid);
  }
}

void RendezvousHub::notify(const std::string& uid) {
  std::string key;
  ChangeKind kind = ChangeKind::kHeartbeat;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_jobs_.find(uid);
    const auto snapshot = found == open_jobs_.end() ? std::nullopt : server_->snapshot(uid);
    if (!snapshot) return;
    key = found->second.key;
    const auto now = std::tuple(snapshot->latest_epoch, snapshot->phase, snapshot->members.size(),
                                snapshot->loss_count);
    if (std::exchange(found->second.last_seen, now) != now) kind = ChangeKind::kMembership;
  }
  changed_(key, kind);
}

Status RendezvousHub::expect(const std::string& uid, const policy::Membership& membership,
                             const std::function<Job()>& make_job) {
  const std::lock_guard lock(mutex_);
  auto open = open_jobs_.find(uid);
  if (open == open_jobs_.end()) {
    Job job = make_job();
    rendezvous::JobSpec spec{uid,     std::move(job.secret),    {},     job.last_epoch,
                             job.tls, job.last_checkpoint_step, job.isa};
    spec.settings.exact = job.exact;
    spec.settings.min_world = membership.min_world;
    spec.settings.max_world = membership.max_world;
    spec.settings.expected = membership.expected;
    const Duration heartbeat_timeout =
        job.heartbeat_timeout.value_or(spec.settings.heartbeat_timeout);
    spec.settings.heartbeat_timeout = heartbeat_timeout;
    if (Status added = server_->add_job(std::move(spec)); !added) return added;
    // The expected membership, with its timeout, is sent below.
    open = open_jobs_
               .emplace(uid, OpenJob{std::move(job.key),
                                     job.global_batch,
                                     heartbeat_timeout,
                                     monotonic_now(),
                                     {},
                                     {},
                                     {}})
               .first;
    open->second.sent.expected = 0;
  }
  if (open->second.sent != membership) {
    if (Status sent = server_->expect(uid, {membership.min_world, membership.max_world,
                                            membership.expected, membership.timeout});
        !sent)
      return sent;
    open->second.sent = membership;
  }
  return {};
}

void RendezvousHub::report_ended(const std::string& uid,
                                 const std::vector<policy::Worker>& workers) {
  const std::lock_guard lock(mutex_);
  const auto open = open_jobs_.find(uid);
  if (open == open_jobs_.end()) return;
  for (const policy::Worker& worker : workers) {
    if (policy::has_ended(worker) && open->second.reported_ended.insert(worker.uid).second)
      server_->worker_exited(uid, worker.index);
  }
}

void RendezvousHub::close(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  if (open_jobs_.erase(uid) > 0) server_->remove_job(uid, "the job is no longer running");
}

std::optional<policy::RendezvousView> RendezvousHub::view(
    const std::string& uid, const std::vector<policy::Worker>& workers, WallTime now,
    MonotonicTime clock) const {
  const std::lock_guard lock(mutex_);
  const auto open = open_jobs_.find(uid);
  if (open == open_jobs_.end()) return std::nullopt;
  const auto snapshot = server_->snapshot(uid);
  if (!snapshot) return std::nullopt;
  policy::RendezvousView view = policy::view_of(*snapshot, std::nullopt, open->second.global_batch);
  policy::mark_silent(workers, clock - open->second.opened_at, open->second.heartbeat_timeout, now,
                      view);
  return view;
}

std::size_t RendezvousHub::members() const {
  const std::lock_guard lock(mutex_);
  std::size_t members = 0;
  for (const auto& [uid, open] : open_jobs_) {
    const auto snapshot = server_->snapshot(uid);
    if (!snapshot) continue;
    members += static_cast<std::size_t>(
        std::ranges::count(snapshot->members, true, &rendezvous::MemberView::connected));
  }
  return members;
}

}  // namespace tilewright::controller
