#include "common/rendezvous/server.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/rendezvous/server_impl.h"

namespace tilewright::rendezvous {

Result<std::unique_ptr<Server>> Server::start(const Options& options, std::shared_ptr<Logger> log) {
  Result<net::Listener> listener = net::Listener::bind(options.listen);
  if (!listener.ok()) return listener.error();
  return std::unique_ptr<Server>(
      new Server(std::make_unique<Impl>(options, std::move(listener).value(), std::move(log))));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

const net::Address& Server::address() const { return impl_->address(); }
Status Server::add_job(JobSpec spec) { return impl_->add_job(std::move(spec)); }
void Server::remove_job(const std::string& uid, const std::optional<std::string>& sentence) {
  impl_->remove_job(uid, sentence);
}
Status Server::expect(const std::string& uid, const Expect& expect) {
  return impl_->expect(uid, expect);
}
std::optional<Snapshot> Server::snapshot(const std::string& uid) const {
  return impl_->snapshot(uid);
}
const net::WakeUp& Server::changes() const { return impl_->changes(); }
std::vector<std::string> Server::take_changed() { return impl_->take_changed(); }

Status Server::Impl::add_job(JobSpec spec) {
  if (!is_job_uid(spec.uid))
    return Error{
        ExitCode::kUsage,
        fmt::format("rendezvous: the job's uid is \"{}\", expected 1 to {} letters, digits, "
                    "'-', '_', '.' and ':'",
                    spec.uid, kMaxUidBytes)};
  if (Status status = check(spec.settings); !status.ok()) return status;
  const std::scoped_lock lock(mutex_);
  if (jobs_.contains(spec.uid))
    return Error{ExitCode::kUsage, fmt::format("rendezvous: job {} is served already", spec.uid)};
  net::TlsKey tls_key(spec.key, proof_context(spec.uid));
  Job job{.uid = spec.uid,
          .key = std::move(spec.key),
          .tls = spec.tls,
          .tls_key = std::move(tls_key),
          .state = make_state(spec.settings, spec.floor, monotonic_now()),
          .progress = {},
          .connections = {},
          .losses = {},
          .deadline = {}};
  jobs_.emplace(spec.uid, std::move(job));
  return {};
}

void Server::Impl::remove_job(const std::string& uid, const std::optional<std::string>& sentence) {
  const std::scoped_lock lock(mutex_);
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return;
  jobs_.erase(job);
  for (auto& [id, connection] : connections_) {
    if (connection.job_uid() != uid) continue;
    if (sentence && connection.proved()) connection.send(Refuse{{}, *sentence, false});
    end_softly(connection);
    dirty_.insert(id);
  }
  changed_.erase(uid);
  bell_.signal();
}

Status Server::Impl::expect(const std::string& uid, const Expect& expect) {
  const std::scoped_lock lock(mutex_);
  Job* job = find_job(uid);
  if (job == nullptr) return {};
  Settings wanted = job->state.settings;
  wanted.min_world = expect.min_world;
  wanted.max_world = expect.max_world;
  wanted.expected = expect.expected;
  if (Status status = check(wanted); !status.ok()) return status;
  apply(*job, expect);
  bell_.signal();
  return {};
}

std::optional<Snapshot> Server::Impl::snapshot(const std::string& uid) const {
  const std::scoped_lock lock(mutex_);
  const auto found = jobs_.find(uid);
  if (found == jobs_.end()) return std::nullopt;
  const Job& job = found->second;
  const State& state = job.state;
  Snapshot result{.uid = uid,
                  .phase = state.phase,
                  .latest = state.latest,
                  .epoch = state.epoch(),
                  .world = static_cast<int>(state.roster.size()),
                  .expected = state.settings.expected,
                  .last_end = state.last_end,
                  .members = {},
                  .progress = job.progress,
                  .losses = {job.losses.begin(), job.losses.end()},
                  .number_of_losses = job.number_of_losses,
                  .refused = job.refused};
  std::map<MemberId, int> ranks;
  for (const Place& place : state.roster)
    ranks.emplace(place.peer.who, static_cast<int>(ranks.size()));
  for (const auto& [seat, member] : state.members) {
    const auto rank = ranks.find(member.who);
    result.members.push_back({member.who, member.standing, rank == ranks.end() ? -1 : rank->second,
                              member.address, member.isa, member.last_seen, member.progress});
  }
  return result;
}

std::vector<std::string> Server::Impl::take_changed() {
  const std::scoped_lock lock(mutex_);
  changes_.clear();
  std::vector<std::string> uids(changed_.begin(), changed_.end());
  changed_.clear();
  return uids;
}

}  // namespace tilewright::rendezvous
