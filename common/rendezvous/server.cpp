#include "common/rendezvous/server.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "common/base/clock.h"
#include "common/net/connect.h"
#include "common/net/event_loop.h"
#include "common/net/tls.h"
#include "common/rendezvous/connection.h"
#include "common/rendezvous/rejections.h"
#include "common/rendezvous/unauthenticated.h"
#include "common/rendezvous/worker_indices.h"

namespace tilewright::rendezvous {
namespace {

// Time for a refused member to read the reason.
constexpr Duration kLingerTimeout = std::chrono::seconds(2);
// Pause after accept() fails, most likely because file descriptors ran out.
constexpr Duration kAcceptPause = std::chrono::seconds(1);
constexpr net::EventLoop::Id kListenerId = net::EventLoop::kFirstId;

// Of the members, and of those of the current epoch that have not reconnected yet.
std::set<int> worker_indices_of(const State& state) {
  std::set<int> indices;
  for (const auto& [process, member] : state.members) indices.insert(process.worker_index);
  for (const EpochMember& one : state.epoch_members)
    indices.insert(one.peer.who.process.worker_index);
  return indices;
}

}  // namespace

// One mutex guards all state. The thread of the loop holds it except while it waits, and no code
// blocks while it holds the mutex.
class Server::Impl {
 public:
  Impl(const Options& options, net::Listener listener, std::shared_ptr<Logger> log);
  void start();  // the thread that serves connections

  const net::Address& address() const { return listener_.local_address(); }
  Status add_job(JobSpec spec);
  void remove_job(const std::string& uid, const std::optional<std::string>& reason);
  void fail_job(const std::string& uid, const std::string& reason);
  Status expect(const std::string& uid, const Expect& expect);
  void worker_exited(const std::string& uid, const WorkerExited& exited);
  std::optional<Snapshot> snapshot(const std::string& uid) const;
  std::map<std::string, std::uint64_t> rejections() const;
  Usage usage() const;
  const net::WakeUp& changes() const { return changes_; }
  std::vector<std::string> take_changed();

 private:
  using ConnectionId = net::EventLoop::Id;

  struct Job {
    std::string uid;
    net::SecretKey key;
    bool tls = false;
    net::TlsKey tls_key;
    State state;
    std::optional<Progress> progress;  // as in Snapshot
    std::map<MemberId, ConnectionId> connections;
    // The latest peers sent, and their text while a connection has yet to send it.
    SharedPeers peers = {};
    std::weak_ptr<const std::string> peers_text = {};
    WorkerIndices indices;  // of the agents that ask; a request has the id of its connection
    bool ends_with_an_agent = false;
    // Worker indices of processes that have reported a phase of the training.
    std::set<int> trained;
    std::optional<std::string> failure;  // of fail_job()
    std::deque<Loss> losses;
    std::uint64_t loss_count = 0;
    std::uint64_t disconnections = 0;
    std::optional<MonotonicTime> deadline;
    // Shared with its connections, which may outlive the job for a moment.
    std::shared_ptr<Usage> usage = std::make_shared<Usage>();
    TokenBucket messages;
  };

  void iterate(Duration gap);
  // Sets now_, and moves deadlines by the time that this thread did not run.
  void begin_iteration(Duration gap);
  void read_all();
  void serve_deadlines();
  MonotonicTime next_wake() const;
  // For the proof, then for the join; nullopt: has joined, need not join, or is being closed.
  std::optional<MonotonicTime> join_deadline(const Connection& connection) const;
  void accept_some();
  void add_connection(net::Socket socket);
  // The oldest of the connections that wait for their peers to read the last message.
  void close_oldest_lingering();
  // Adds a new connection to the unauthenticated ones, possibly in place of the oldest.
  void add_unauthenticated(ConnectionId id, const std::string& peer);
  void watch_listener(std::uint32_t events);
  void read_from(ConnectionId id);
  // Counts a connection that has proved the secret for its job, or turns it away.
  void admit(ConnectionId id, Connection& connection);
  JobLimits limits_of(const Job& job) const {
    return job_limits(options_.limits, job.state.settings.max_world);
  }
  // Updates the memory that the connection is known to use.
  void account(Connection& connection);
  // Turns connections away until the limits of the job and of all jobs hold.
  void enforce_buffer_limits(const std::string& uid);
  // Turns away the connection that buffers the most; false: none is left.
  bool reject_largest(const Usage& usage, Rejection reason, const std::string& why);
  // Tells the peer why its connection is closed. It may connect again later.
  void reject(ConnectionId id, Rejection reason, const std::string& why);
  void reject_message(Connection& connection, const std::string& why);
  void flush(ConnectionId id);
  const net::TlsKey* find_tls_key(std::string_view identity) const;
  void take_message(ConnectionId id, Connection& connection, const std::string& text);
  void refuse(Connection& connection, Job& job, const std::string& reason);
  void end_with_failure(Job& job, const std::string& reason);
  void take_failure(Job& job, const AgentFailed& failed, const std::string& peer);
  // Whether the others train and suffice, while no process of this worker index has trained.
  static bool continues_without(const Job& job, int worker_index);
  // All of a job, with a reason after telling it to those that have proved the secret.
  void close_connections(const std::string& uid, const std::optional<std::string>& reason);
  bool take_join(ConnectionId id, Connection& connection, Job& job, const Join& join);
  // Answers the requests of the jobs whose hosts are known.
  void answer_index_requests();
  static MonotonicTime last_report_of_hosts(const Job& job) {
    return job.state.started + job.state.settings.recovery_timeout;
  }
  void close(ConnectionId id, const std::string& reason);
  void close_gracefully(Connection& connection);
  void apply(Job& job, const Event& event, MonotonicTime now);
  void record_progress(Job& job, const Heartbeat& beat);
  void execute(Job& job, const Action& action);
  void send(Job& job, const MemberId& to, const ServerMessage& message, bool last = false);
  void send_assignment(Job& job, const Assign& assign);
  // The connection of a member, unless it is being closed; else the end of connections_.
  std::map<ConnectionId, Connection>::iterator find_connection(const Job& job, const MemberId& who);
  // The encoded peers, which all members of an epoch share. The memory is the job's until the last
  // connection has sent them.
  SharedText share_peers(Job& job, const SharedPeers& peers);
  void changed(const Job& job);
  Job* find_job(const std::string& uid);

  const Options options_;
  Clock& clock_;
  net::Listener listener_;
  std::shared_ptr<Logger> log_;
  net::WakeUp changes_;

  mutable std::mutex mutex_;
  std::map<std::string, Job> jobs_;
  Usage usage_;  // of all connections; outlives them and the texts that they share
  std::map<ConnectionId, Connection> connections_;
  std::set<ConnectionId> dirty_;  // connections with something to send or to close
  std::set<std::string> changed_;
  ConnectionId next_id_ = kListenerId + 1;
  UnauthenticatedConnections unauthenticated_;
  Rejections rejections_;
  std::optional<MonotonicTime> resume_accept_at_;
  // Time of the current iteration. Deadlines are judged by it, after all input has been read that
  // arrived before it.
  MonotonicTime now_;
  net::EventLoop loop_;  // last: its thread uses the others
};

// --- calls from the owner ---

Result<std::unique_ptr<Server>> Server::start(const Options& options, std::shared_ptr<Logger> log,
                                              std::vector<JobSpec> jobs) {
  Result<net::Listener> listener = net::Listener::bind(options.listen);
  if (!listener.ok()) return listener.error();
  auto impl = std::make_unique<Impl>(options, std::move(listener).value(), std::move(log));
  for (JobSpec& job : jobs) {
    if (Status status = impl->add_job(std::move(job)); !status.ok()) return status.error();
  }
  impl->start();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

const net::Address& Server::address() const { return impl_->address(); }
Status Server::add_job(JobSpec spec) { return impl_->add_job(std::move(spec)); }
void Server::remove_job(const std::string& uid, const std::optional<std::string>& reason) {
  impl_->remove_job(uid, reason);
}
void Server::fail_job(const std::string& uid, const std::string& reason) {
  impl_->fail_job(uid, reason);
}
Status Server::expect(const std::string& uid, const Expect& expect) {
  return impl_->expect(uid, expect);
}
void Server::worker_exited(const std::string& uid, int worker_index,
                           std::optional<int> local_rank) {
  impl_->worker_exited(uid, {worker_index, local_rank});
}
std::optional<Snapshot> Server::snapshot(const std::string& uid) const {
  return impl_->snapshot(uid);
}
std::map<std::string, std::uint64_t> Server::rejections() const { return impl_->rejections(); }
Usage Server::usage() const { return impl_->usage(); }
const net::WakeUp& Server::changes() const { return impl_->changes(); }
std::vector<std::string> Server::take_changed() { return impl_->take_changed(); }

Status Server::Impl::add_job(JobSpec spec) {
  if (!is_job_uid(spec.uid))
    return Error{
        ExitCode::kUsage,
        fmt::format("rendezvous: the job's uid is \"{}\", expected 1 to {} letters, digits, "
                    "'-', '_', '.' or ':'",
                    spec.uid, kMaxUidBytes)};
  if (Status status = check(spec.settings); !status.ok()) return status;
  if (spec.last_epoch > kMaxStoredEpoch)
    return Error{ExitCode::kUsage, fmt::format("rendezvous: the last epoch of job {} is {}, "
                                               "expected at most {}",
                                               spec.uid, spec.last_epoch, kMaxStoredEpoch)};
  const std::scoped_lock lock(mutex_);
  if (jobs_.contains(spec.uid))
    return Error{ExitCode::kUsage,
                 fmt::format("rendezvous: job {} is already registered", spec.uid)};
  const net::TlsKey tls_key(spec.key, proof_context(spec.uid));
  Job job{.uid = spec.uid,
          .key = std::move(spec.key),
          .tls = spec.tls,
          .tls_key = tls_key,
          .state = make_state(spec.settings, {spec.last_epoch, spec.last_checkpoint_step, spec.isa},
                              clock_.now()),
          .progress = {},
          .connections = {},
          .indices = WorkerIndices(spec.first_index, spec.hosts),
          .ends_with_an_agent = spec.ends_with_an_agent,
          .trained = {},
          .failure = {},
          .losses = {},
          .deadline = {},
          .messages = {}};
  jobs_.emplace(spec.uid, std::move(job));
  return {};
}

void Server::Impl::remove_job(const std::string& uid, const std::optional<std::string>& reason) {
  const std::scoped_lock lock(mutex_);
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return;
  jobs_.erase(job);
  close_connections(uid, reason);
  changed_.erase(uid);
}

void Server::Impl::close_connections(const std::string& uid,
                                     const std::optional<std::string>& reason) {
  for (auto& [id, connection] : connections_) {
    if (connection.job_uid() != uid || connection.close_deadline) continue;
    if (reason && connection.authenticated()) connection.send(Refuse{{}, *reason, false});
    close_gracefully(connection);
    dirty_.insert(id);
  }
  loop_.wake();
}

void Server::Impl::fail_job(const std::string& uid, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (Job* job = find_job(uid); job != nullptr) end_with_failure(*job, reason);
}

// The first failure counts.
void Server::Impl::end_with_failure(Job& job, const std::string& reason) {
  if (job.failure) return;
  job.failure = reason;
  close_connections(job.uid, reason);
}

void Server::Impl::take_failure(Job& job, const AgentFailed& failed, const std::string& peer) {
  const bool continues = failed.worker_index && continues_without(job, *failed.worker_index);
  log_->error("rendezvous: job {}: {}: {}{}", job.uid, peer, failed.reason,
              continues ? "; the job continues without this host" : "");
  if (job.ends_with_an_agent && !continues) end_with_failure(job, failed.reason);
}

bool Server::Impl::continues_without(const Job& job, int worker_index) {
  if (job.trained.empty() || job.trained.contains(worker_index)) return false;
  const auto others = std::ranges::count_if(job.state.members, [&](const auto& entry) {
    return entry.first.worker_index != worker_index;
  });
  return others >= job.state.settings.min_world;
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
  apply(*job, expect, clock_.now());
  loop_.wake();
  return {};
}

void Server::Impl::worker_exited(const std::string& uid, const WorkerExited& exited) {
  const std::scoped_lock lock(mutex_);
  Job* job = find_job(uid);
  if (job == nullptr) return;
  apply(*job, exited, clock_.now());
  loop_.wake();
}

std::optional<Snapshot> Server::Impl::snapshot(const std::string& uid) const {
  const std::scoped_lock lock(mutex_);
  const auto found = jobs_.find(uid);
  if (found == jobs_.end()) return std::nullopt;
  const Job& job = found->second;
  const State& state = job.state;
  Snapshot result{.phase = state.phase,
                  .latest_epoch = state.latest_epoch,
                  .epoch = state.epoch(),
                  .world = static_cast<int>(state.epoch_members.size()),
                  .isa = state.isa,
                  .members = {},
                  .progress = job.progress,
                  .losses = {job.losses.begin(), job.losses.end()},
                  .loss_count = job.loss_count,
                  .disconnections = job.disconnections};
  std::map<MemberId, int> ranks;
  for (const EpochMember& epoch_member : state.epoch_members)
    ranks.emplace(epoch_member.peer.who, static_cast<int>(ranks.size()));
  for (const auto& [process, member] : state.members) {
    const auto rank = ranks.find(member.who);
    result.members.push_back({member.who, member.state, !member.disconnected,
                              rank == ranks.end() ? -1 : rank->second,
                              member.state == MemberState::kWaiting && lacks_isa(state, member),
                              member.last_seen, member.progress});
  }
  return result;
}

std::map<std::string, std::uint64_t> Server::Impl::rejections() const {
  const std::scoped_lock lock(mutex_);
  return rejections_.counts();
}

Usage Server::Impl::usage() const {
  const std::scoped_lock lock(mutex_);
  return {connections_.size(), usage_.buffered_bytes};
}

std::vector<std::string> Server::Impl::take_changed() {
  const std::scoped_lock lock(mutex_);
  changes_.clear();
  std::vector<std::string> uids(changed_.begin(), changed_.end());
  changed_.clear();
  return uids;
}

// --- the server's thread: converts messages to events, and actions to messages ---

Server::Impl::Impl(const Options& options, net::Listener listener, std::shared_ptr<Logger> log)
    : options_(options),
      clock_(*options.clock),
      listener_(std::move(listener)),
      log_(std::move(log)),
      unauthenticated_(options.limits.unauthenticated, options.limits.unauthenticated_per_source),
      rejections_(log_),
      now_(clock_.now()),
      loop_(clock_, mutex_) {
  loop_.watch(kListenerId, listener_.fd(), EPOLLIN);
}

void Server::Impl::start() {
  loop_.start([this] { return next_wake(); }, [this](Duration gap) { iterate(gap); });
}

void Server::Impl::iterate(Duration gap) {
  begin_iteration(gap);
  read_all();
  serve_deadlines();
  answer_index_requests();
  // A failed send may remove a member, which adds messages for the others.
  while (!dirty_.empty()) flush(*dirty_.begin());
}

void Server::Impl::begin_iteration(Duration gap) {
  now_ = clock_.now();
  if (gap == Duration::zero()) return;
  // The stall may have begun at any time since the last iteration.
  log_->warn(
      "rendezvous: the coordinator did not run for up to {:.1f} s; deadlines move by this "
      "time",
      in_seconds(gap));
  for (auto& [uid, job] : jobs_) apply(job, Stalled{gap}, now_);
  for (auto& [id, connection] : connections_)
    connection.opened = std::min(connection.opened + gap, now_);
}

// A heartbeat may wait behind other input, so a deadline is judged only after everything that has
// arrived was read.
void Server::Impl::read_all() {
  const auto handle = [this](ConnectionId id, std::uint32_t events) {
    if (id == kListenerId) return accept_some();
    // A TLS handshake may have to write before it can continue to read.
    read_from(id);
    if (events & EPOLLOUT) flush(id);
  };
  // This many calls report each ready connection.
  std::size_t left = connections_.size() / net::EventLoop::kMaxEvents + 1;
  while (left > 0 && loop_.take_events(handle)) --left;
}

MonotonicTime Server::Impl::next_wake() const {
  MonotonicTime wake = resume_accept_at_.value_or(clock_.now() + kLongestWait);
  for (const auto& [uid, job] : jobs_) {
    if (job.deadline) wake = std::min(wake, *job.deadline);
    if (job.indices.has_requests()) wake = std::min(wake, last_report_of_hosts(job));
  }
  for (const auto& [id, connection] : connections_) {
    if (connection.close_deadline) wake = std::min(wake, *connection.close_deadline);
    if (const auto deadline = join_deadline(connection)) wake = std::min(wake, *deadline);
  }
  return wake;
}

std::optional<MonotonicTime> Server::Impl::join_deadline(const Connection& connection) const {
  if (connection.who || connection.waits_for_index || connection.close_deadline)
    return std::nullopt;
  return connection.opened +
         (connection.authenticated() ? options_.join_timeout : options_.proof_timeout);
}

void Server::Impl::serve_deadlines() {
  for (auto& [uid, job] : jobs_) {
    if (job.deadline && *job.deadline <= now_) apply(job, Tick{}, now_);
  }
  std::vector<std::pair<ConnectionId, std::string>> over;
  for (const auto& [id, connection] : connections_) {
    if (connection.close_deadline && *connection.close_deadline <= now_) {
      over.emplace_back(id, "closed by the coordinator");
    } else if (const auto deadline = join_deadline(connection); deadline && *deadline <= now_) {
      const std::string why = fmt::format(
          "did not {} within {} s", connection.authenticated() ? "join" : "prove a job's secret",
          in_seconds(*deadline - connection.opened));
      if (!connection.authenticated())
        rejections_.add(Rejection::kNoProof, "", connection.peer(), why, now_);
      over.emplace_back(id, why);
    }
  }
  for (const auto& [id, reason] : over) close(id, reason);
  if (resume_accept_at_ && *resume_accept_at_ <= now_) {
    resume_accept_at_.reset();
    watch_listener(EPOLLIN);
  }
}

void Server::Impl::watch_listener(std::uint32_t events) {
  loop_.change(kListenerId, listener_.fd(), events);
}

void Server::Impl::accept_some() {
  const Status status =
      listener_.accept_some([this](net::Socket socket) { add_connection(std::move(socket)); });
  if (status.ok()) return;
  log_->warn("rendezvous: {}", status.error().message);
  resume_accept_at_ = now_ + kAcceptPause;
  watch_listener(0);
}

void Server::Impl::add_connection(net::Socket socket) {
  if (connections_.size() >= options_.limits.connections) close_oldest_lingering();
  if (connections_.size() >= options_.limits.connections) {
    rejections_.add(Rejection::kConnections, "", socket.peer(),
                    fmt::format("all {} connections are in use", connections_.size()), now_);
    return;
  }
  const ConnectionId id = next_id_++;
  const auto [at, added] = connections_.try_emplace(
      id, std::move(socket), now_,
      [this](std::string_view identity) { return find_tls_key(identity); });
  loop_.watch(id, at->second.fd(), at->second.events());
  add_unauthenticated(id, at->second.peer());
}

// A rejected connection is no longer part of its job's share, so a job must not be able to fill all
// connections with such.
void Server::Impl::close_oldest_lingering() {
  const auto lingers = [](const auto& entry) { return entry.second.close_deadline.has_value(); };
  auto oldest = std::ranges::find_if(connections_, [&](const auto& entry) {
    return lingers(entry) && !entry.second.wants_to_write();
  });
  if (oldest == connections_.end()) {
    oldest = std::ranges::find_if(connections_, lingers);
    if (oldest == connections_.end()) return;
    (void)oldest->second.write();  // its last message may wait for the end of this iteration
  }
  close(oldest->first, "closed by the coordinator");
}

void Server::Impl::add_unauthenticated(ConnectionId id, const std::string& peer) {
  const auto address = net::parse_address(peer);
  const std::string source = net::source_network(address.ok() ? address->host : peer);
  const auto evicted = unauthenticated_.add(id, source);
  if (!evicted) return;
  const std::string reason =
      evicted->share_used
          ? fmt::format("{} connections from {} have not authenticated",
                        options_.limits.unauthenticated_per_source, source)
          : fmt::format("{} connections have not authenticated", options_.limits.unauthenticated);
  rejections_.add(evicted->share_used ? Rejection::kSource : Rejection::kUnauthenticated, "",
                  connections_.at(evicted->id).peer(), reason + ", and this one is the oldest",
                  now_);
  close(evicted->id, reason);
}

void Server::Impl::read_from(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  const bool known = connection.authenticated();
  std::vector<std::string> messages;
  const Status status = connection.read(
      [this](const std::string& uid) -> const net::SecretKey* {
        const Job* job = find_job(uid);
        return job == nullptr ? nullptr : &job->key;
      },
      messages);
  if (!known && connection.authenticated()) admit(id, connection);
  for (const std::string& message : messages) {
    if (connection.close_deadline) break;
    take_message(id, connection, message);
  }
  if (!status.ok()) {
    if (!connection.authenticated() && !connection.peer_closed())
      rejections_.add(Rejection::kNoProof, "", connection.peer(), status.error().message, now_);
    return close(id, status.error().message);
  }
  dirty_.insert(id);
  account(connection);
  enforce_buffer_limits(connection.job_uid());
}

void Server::Impl::admit(ConnectionId id, Connection& connection) {
  unauthenticated_.remove(id);
  Job* job = find_job(connection.job_uid());
  if (job == nullptr) return close_gracefully(connection);
  const std::size_t share = limits_of(*job).connections;
  if (job->usage->connections >= share)
    return reject(id, Rejection::kJobConnections,
                  fmt::format("the job has {} connections, the maximum for its number of "
                              "processes",
                              share));
  connection.usage = job->usage;
  ++job->usage->connections;
  job->usage->buffered_bytes += connection.accounted;
}

void Server::Impl::account(Connection& connection) {
  const std::size_t before = std::exchange(connection.accounted, connection.buffered_bytes());
  usage_.buffered_bytes += connection.accounted - before;
  if (connection.usage) connection.usage->buffered_bytes += connection.accounted - before;
}

// Closes the largest connections first: a member with short messages is not affected.
void Server::Impl::enforce_buffer_limits(const std::string& uid) {
  if (const Job* job = find_job(uid)) {
    const std::size_t share = limits_of(*job).buffered_bytes;
    while (job->usage->buffered_bytes > share &&
           reject_largest(
               *job->usage, Rejection::kJobBuffers,
               fmt::format("the job's messages use {} bytes of memory, at most {} are allowed",
                           job->usage->buffered_bytes, share))) {
    }
  }
  while (usage_.buffered_bytes > options_.limits.buffered_bytes) {
    const auto most = std::ranges::max_element(
        jobs_, {}, [](const auto& entry) { return entry.second.usage->buffered_bytes; });
    if (most == jobs_.end() ||
        !reject_largest(*most->second.usage, Rejection::kBuffers,
                        fmt::format("the messages of all jobs use {} bytes of memory, at most "
                                    "{} are allowed, and this job uses the most",
                                    usage_.buffered_bytes, options_.limits.buffered_bytes)))
      return;
  }
}

bool Server::Impl::reject_largest(const Usage& usage, Rejection reason, const std::string& why) {
  auto largest = connections_.end();
  for (auto one = connections_.begin(); one != connections_.end(); ++one) {
    if (one->second.usage.get() != &usage || one->second.close_deadline) continue;
    if (largest == connections_.end() || one->second.held_bytes() > largest->second.held_bytes())
      largest = one;
  }
  if (largest == connections_.end()) return false;
  reject(largest->first, reason, why);
  return true;
}

void Server::Impl::reject(ConnectionId id, Rejection reason, const std::string& why) {
  Connection& connection = connections_.at(id);
  rejections_.add(reason, connection.job_uid(), connection.peer(), why, now_);
  connection.reject(why);
  close_gracefully(connection);
  account(connection);
  dirty_.insert(id);
}

void Server::Impl::refuse(Connection& connection, Job& job, const std::string& reason) {
  log_->warn("rendezvous: refused {} of job {}: {}", connection.peer(), job.uid, reason);
  connection.send(Refuse{{}, reason, false});
  close_gracefully(connection);
}

void Server::Impl::take_message(ConnectionId id, Connection& connection, const std::string& text) {
  Job* job = find_job(connection.job_uid());
  if (job == nullptr) return close_gracefully(connection);
  const double rate = limits_of(*job).messages_per_second;
  if (!job->messages.take(message_cost(text.size()), rate, now_))
    return reject(
        id, Rejection::kJobMessages,
        fmt::format("the job's processes send more than {:.0f} messages per second", rate));
  if (job->failure) return refuse(connection, *job, *job->failure);
  if (connection.protocol_version() != kProtocolVersion) {
    const std::string reason = fmt::format(
        "this process uses version {} of the rendezvous protocol, the coordinator version {}; "
        "expected the same release of Tilewright for both",
        connection.protocol_version(), kProtocolVersion);
    // A member that trains needs no coordinator, so an upgrade must not end it.
    if (connection.protocol_version() >= kFirstVersionWithUnavailable && is_join_with_epoch(text))
      return reject(id, Rejection::kVersion, reason);
    return refuse(connection, *job, reason);
  }
  Result<ClientMessage> message = decode_client_message(text);
  if (!message.ok()) return reject_message(connection, message.error().message);
  if (connection.encrypted() != job->tls) {
    const std::string reason = fmt::format(
        "the job's members {} TLS and this process {} (set tls in spec.elasticPolicy.rdzvConf, or "
        "in the agent's --rdzv_conf, to the same value for all)",
        job->tls ? "use" : "do not use", job->tls ? "does not" : "does");
    return refuse(connection, *job, reason);
  }
  if (const AgentFailed* failed = std::get_if<AgentFailed>(&*message)) {
    connection.send(Acknowledge{});
    close_gracefully(connection);
    return take_failure(*job, *failed, connection.peer());
  }
  if (const Join* join = std::get_if<Join>(&*message)) {
    if (take_join(id, connection, *job, *join)) apply(*job, *join, now_);
    return;
  }
  if (const IndexRequest* request = std::get_if<IndexRequest>(&*message)) {
    connection.waits_for_index = true;
    job->indices.request(id, request->agent_id);
    return;  // answer_index_requests() follows
  }
  if (!connection.who) return reject_message(connection, "its first message is not a join");
  const auto apply_from_member = [&](auto event) {
    event.who = *connection.who;
    apply(*job, event, now_);
  };
  if (auto* beat = std::get_if<Heartbeat>(&*message)) {
    beat->who = *connection.who;
    record_progress(*job, *beat);
    apply_from_member(std::move(*beat));
    connection.send(HeartbeatReply{job->state.current(), job->state.settings.heartbeat_timeout});
  } else if (auto* finished = std::get_if<Finished>(&*message)) {
    apply_from_member(*finished);
  } else if (auto* leave = std::get_if<Leave>(&*message)) {
    apply_from_member(std::move(*leave));
    close_gracefully(connection);
  }
}

void Server::Impl::reject_message(Connection& connection, const std::string& why) {
  rejections_.add(Rejection::kProtocol, connection.job_uid(), connection.peer(), why, now_);
  close_gracefully(connection);
}

// Also finds keys of jobs without TLS, so that a member that uses TLS receives the reason of its
// refusal.
const net::TlsKey* Server::Impl::find_tls_key(std::string_view identity) const {
  const auto found = std::ranges::find_if(
      jobs_, [identity](const auto& entry) { return entry.second.tls_key.identity() == identity; });
  return found == jobs_.end() ? nullptr : &found->second.tls_key;
}

// Binds the connection to the member; false: it is already bound to another one.
bool Server::Impl::take_join(ConnectionId id, Connection& connection, Job& job, const Join& join) {
  if (connection.who && *connection.who != join.who) {
    reject_message(connection, "it joined as two different workers");
    return false;
  }
  connection.who = join.who;
  ConnectionId& current = job.connections[join.who];
  if (const auto old = connections_.find(current); current != id && old != connections_.end()) {
    close_gracefully(old->second);  // the same process has reconnected
    dirty_.insert(current);
  }
  current = id;
  return true;
}

void Server::Impl::answer_index_requests() {
  for (auto& [uid, job] : jobs_) {
    if (!job.indices.has_requests()) continue;
    const std::set<int> used = worker_indices_of(job.state);
    if (now_ < last_report_of_hosts(job) && !job.indices.all_hosts_known(used)) continue;
    for (const auto& [id, index] : job.indices.answer(used)) {
      Connection& connection = connections_.at(id);
      if (connection.close_deadline) continue;
      dirty_.insert(id);
      if (!index) {
        refuse(connection, job,
               fmt::format("the job has used all its {} worker indices", kMaxWorkerIndex));
        continue;
      }
      connection.send(WorkerIndex{*index});
      close_gracefully(connection);
    }
  }
}

void Server::Impl::flush(ConnectionId id) {
  dirty_.erase(id);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  if (Status status = connection.write(); !status.ok()) return close(id, status.error().message);
  if (connection.close_deadline && !connection.wants_to_write()) connection.shutdown_write();
  loop_.change(id, connection.fd(), connection.events());
  account(connection);
  enforce_buffer_limits(connection.job_uid());
}

void Server::Impl::close(ConnectionId id, const std::string& reason) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  // Remove it from the map first, so that the event below does not send to it.
  const Connection connection = std::move(found->second);
  connections_.erase(found);
  dirty_.erase(id);
  usage_.buffered_bytes -= connection.accounted;
  if (connection.usage) {
    --connection.usage->connections;
    connection.usage->buffered_bytes -= connection.accounted;
  }
  if (!connection.authenticated()) {
    unauthenticated_.remove(id);
    log_->debug("rendezvous: closed an unauthenticated connection: {}", reason);
  }
  Job* job = find_job(connection.job_uid());
  if (job == nullptr) return;
  job->indices.withdraw(id);
  if (!connection.who) return;
  const auto current = job->connections.find(*connection.who);
  if (current == job->connections.end() || current->second != id) return;
  job->connections.erase(current);
  apply(*job, ConnectionClosed{*connection.who, reason}, now_);
}

void Server::Impl::close_gracefully(Connection& connection) {
  if (!connection.close_deadline) connection.close_deadline = clock_.now() + kLingerTimeout;
}

void Server::Impl::apply(Job& job, const Event& event, MonotonicTime now) {
  const Phase before = job.state.phase;
  const Epoch epoch = job.state.epoch();
  const Actions actions = step(job.state, event, now);
  for (const Action& action : actions) execute(job, action);
  job.deadline = next_deadline(job.state);
  if (job.state.phase != before || job.state.epoch() != epoch) {
    log_->info("rendezvous: job {}: {}, membership epoch {}, {} processes{}{}", job.uid,
               to_string(job.state.phase), job.state.latest_epoch, job.state.epoch_members.size(),
               job.state.current() ? "" : ": ", job.state.current() ? "" : job.state.end_reason);
  }
  changed(job);
}

// A job's progress is that of rank 0, because all ranks compute the same steps.
void Server::Impl::record_progress(Job& job, const Heartbeat& beat) {
  const State& state = job.state;
  if (!state.current() || beat.epoch != state.epoch()) return;
  if (!beat.progress.phase.empty()) job.trained.insert(beat.who.process.worker_index);
  if (state.epoch_members.front().peer.who == beat.who && beat.progress.total_steps > 0) {
    job.progress = beat.progress;
  }
}

void Server::Impl::execute(Job& job, const Action& action) {
  if (const auto* assign = std::get_if<Assign>(&action)) {
    send_assignment(job, *assign);
  } else if (const auto* end = std::get_if<EndEpoch>(&action)) {
    send(job, end->to, *end);
  } else if (const auto* ask = std::get_if<RequestReform>(&action)) {
    send(job, ask->to, *ask);
  } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
    log_->warn("rendezvous: job {}: refused {}: {}", job.uid, to_string(refuse->to.process),
               refuse->message);
    send(job, refuse->to, *refuse, true);
  } else if (const auto* acknowledge = std::get_if<Acknowledge>(&action)) {
    send(job, acknowledge->to, *acknowledge);
  } else if (const auto* drop = std::get_if<CloseConnection>(&action)) {
    const auto at = job.connections.find(drop->to);
    if (at == job.connections.end()) return;
    if (const auto found = connections_.find(at->second); found != connections_.end())
      close_gracefully(found->second);
    dirty_.insert(at->second);
    job.connections.erase(at);
  } else if (const auto* broken = std::get_if<MemberDisconnected>(&action)) {
    ++job.disconnections;
    log_->info(
        "rendezvous: job {}: the connection of {} broke in epoch {}: {}; waiting up to {:.1f} "
        "s for it to reconnect",
        job.uid, to_string(broken->who.process), broken->epoch, broken->reason,
        in_seconds(job.state.settings.reconnect_timeout));
  } else if (const auto* lost = std::get_if<MemberLost>(&action)) {
    log_->warn("rendezvous: job {}: lost {} in membership epoch {} ({}): {}", job.uid,
               to_string(lost->who.process), lost->epoch, to_string(lost->kind), lost->reason);
    if (job.losses.size() == kKeptLosses) job.losses.pop_front();
    job.losses.push_back({++job.loss_count, *lost, wall_now()});
  }
}

std::map<Server::Impl::ConnectionId, Connection>::iterator Server::Impl::find_connection(
    const Job& job, const MemberId& who) {
  const auto at = job.connections.find(who);
  if (at == job.connections.end()) return connections_.end();
  const auto found = connections_.find(at->second);
  return found == connections_.end() || found->second.close_deadline ? connections_.end() : found;
}

void Server::Impl::send(Job& job, const MemberId& to, const ServerMessage& message, bool last) {
  const auto found = find_connection(job, to);
  if (found == connections_.end()) return;
  found->second.send(message);
  if (last) close_gracefully(found->second);
  dirty_.insert(found->first);
}

void Server::Impl::send_assignment(Job& job, const Assign& assign) {
  const auto found = find_connection(job, assign.to);
  if (found == connections_.end()) return;
  found->second.send(encode_without_peers(assign.assignment), share_peers(job, assign.peers));
  dirty_.insert(found->first);
}

SharedText Server::Impl::share_peers(Job& job, const SharedPeers& peers) {
  SharedText known = job.peers_text.lock();
  if (known && (job.peers == peers || *job.peers == *peers)) return known;
  const auto count = [this, usage = job.usage](std::size_t added, std::size_t freed) {
    for (Usage* one : {&usage_, usage.get()}) one->buffered_bytes += added - freed;
  };
  auto text = std::make_unique<const std::string>(encode_peers(*peers));
  count(text->capacity(), 0);
  SharedText shared(text.release(), [count](const std::string* old) {
    count(0, old->capacity());
    delete old;
  });
  job.peers = peers;
  job.peers_text = shared;
  return shared;
}

void Server::Impl::changed(const Job& job) {
  changed_.insert(job.uid);
  changes_.signal();
}

Server::Impl::Job* Server::Impl::find_job(const std::string& uid) {
  const auto found = jobs_.find(uid);
  return found == jobs_.end() ? nullptr : &found->second;
}

}  // namespace tilewright::rendezvous
