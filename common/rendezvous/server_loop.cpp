// The thread of the server: sockets to events of the state machines, their actions to messages.
#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/rendezvous/server_impl.h"

namespace tilewright::rendezvous {
namespace {

// How long a refused member may take to read the sentence.
constexpr Duration kFarewell = std::chrono::seconds(2);
constexpr Duration kAcceptPause = std::chrono::seconds(1);
constexpr std::uint64_t kListenerId = 0;
constexpr std::uint64_t kBellId = 1;

}  // namespace

Server::Impl::Impl(const Options& options, net::Listener listener, std::shared_ptr<Logger> log)
    : options_(options),
      listener_(std::move(listener)),
      log_(std::move(log)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  TW_CHECK(epoll_.get() >= 0, "epoll_create1: {}", std::strerror(errno));
  for (const auto& [fd, id] : {std::pair(listener_.fd(), kListenerId), {bell_.fd(), kBellId}}) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    TW_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl: {}",
             std::strerror(errno));
  }
  thread_ = std::thread([this] { run(); });
}

Server::Impl::~Impl() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  bell_.signal();
  thread_.join();
}

void Server::Impl::run() {
  std::array<epoll_event, 64> events;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const MonotonicTime wake = next_wake();
    lock.unlock();
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 net::poll_timeout(wake));
    lock.lock();
    TW_CHECK(count >= 0 || errno == EINTR, "epoll_wait: {}", std::strerror(errno));
    for (int i = 0; i < count && !stop_; ++i) {
      const ConnectionId id = events[static_cast<std::size_t>(i)].data.u64;
      const std::uint32_t what = events[static_cast<std::size_t>(i)].events;
      if (id == kListenerId) {
        accept_all();
      } else if (id == kBellId) {
        bell_.clear();
      } else {
        // A TLS handshake may wait for room to write before it reads on.
        read_from(id);
        if (what & EPOLLOUT) flush(id);
      }
    }
    serve_deadlines();
    // Sending may lose a member, which makes more to send.
    while (!dirty_.empty()) flush(*dirty_.begin());
  }
}

MonotonicTime Server::Impl::next_wake() const {
  MonotonicTime wake = listen_again_.value_or(monotonic_now() + std::chrono::hours(1));
  for (const auto& [uid, job] : jobs_)
    if (job.deadline) wake = std::min(wake, *job.deadline);
  for (const auto& [id, connection] : connections_) {
    if (connection.ends) wake = std::min(wake, *connection.ends);
    if (!connection.who)
      wake = std::min(wake, connection.opened + options_.patience_with_strangers);
  }
  return wake;
}

void Server::Impl::serve_deadlines() {
  const MonotonicTime now = monotonic_now();
  for (auto& [uid, job] : jobs_) {
    if (job.deadline && *job.deadline <= now) apply(job, Tick{});
  }
  std::vector<std::pair<ConnectionId, std::string>> over;
  for (const auto& [id, connection] : connections_) {
    if (connection.ends && *connection.ends <= now) {
      over.emplace_back(id, "ended");
    } else if (!connection.who && !connection.ends &&
               connection.opened + options_.patience_with_strangers <= now) {
      over.emplace_back(id, "did not join in time");
    }
  }
  for (const auto& [id, reason] : over) close(id, reason);
  if (listen_again_ && *listen_again_ <= now) {
    listen_again_.reset();
    watch_listener(EPOLLIN);
  }
}

void Server::Impl::watch_listener(std::uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = kListenerId}};
  TW_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.fd(), &event) == 0, "epoll_ctl: {}",
           std::strerror(errno));
}

void Server::Impl::accept_all() {
  while (true) {
    Result<net::Socket> socket = listener_.try_accept();
    if (!socket.ok()) {
      // Most likely out of descriptors: asking again at once would be asking in vain.
      log_->warn("rendezvous: {}", socket.error().message);
      listen_again_ = monotonic_now() + kAcceptPause;
      watch_listener(0);
      return;
    }
    if (!socket->connected()) return;
    if (connections_.size() >= options_.max_connections || strangers_ >= options_.max_strangers) {
      log_->warn("rendezvous: {} was turned away: {} connections, {} of them not proved",
                 socket->peer(), connections_.size(), strangers_);
      continue;
    }
    const ConnectionId id = next_id_++;
    const auto [at, added] = connections_.try_emplace(
        id, std::move(socket).value(), monotonic_now(),
        [this](std::string_view identity) { return find_tls_key(identity); });
    ++strangers_;
    watch(id, at->second, true);
  }
}

void Server::Impl::watch(ConnectionId id, const Connection& connection, bool add) {
  epoll_event event{.events = connection.events(), .data = {.u64 = id}};
  TW_CHECK(
      epoll_ctl(epoll_.get(), add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, connection.fd(), &event) == 0,
      "epoll_ctl: {}", std::strerror(errno));
}

void Server::Impl::read_from(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  const bool known = connection.proved();
  std::vector<std::string> messages;
  const Status status = connection.read(
      [this](const std::string& uid) -> const net::SecretKey* {
        const Job* job = find_job(uid);
        return job == nullptr ? nullptr : &job->key;
      },
      messages);
  if (!known && connection.proved()) --strangers_;
  for (const std::string& message : messages) {
    if (!connection.ends) take_message(id, connection, message);
  }
  if (!status.ok()) return close(id, status.error().message);
  dirty_.insert(id);
}

void Server::Impl::take_message(ConnectionId id, Connection& connection, const std::string& text) {
  Job* job = find_job(connection.job_uid());
  if (job == nullptr) return end_softly(connection);
  Result<ClientMessage> message = decode_client_message(text);
  if (!message.ok()) {
    log_->warn("rendezvous: {} of job {}: {}", connection.peer(), job->uid,
               message.error().message);
    return end_softly(connection);
  }
  if (connection.encrypted() != job->tls) {
    const std::string sentence = fmt::format(
        "the job's members talk {} and this process {} (tls in spec.elasticPolicy.rdzvConf, or in "
        "the agent's --rdzv_conf, is to be the same for all)",
        job->tls ? "under TLS" : "without TLS", job->tls ? "does not" : "under it");
    log_->warn("rendezvous: {} of job {} is refused: {}", connection.peer(), job->uid, sentence);
    ++job->refused;
    connection.send(Refuse{{}, sentence, false});
    return end_softly(connection);
  }
  if (const Join* join = std::get_if<Join>(&*message)) {
    if (take_join(id, connection, *job, *join)) apply(*job, *join);
    return;
  }
  if (!connection.who) {
    log_->warn("rendezvous: {} of job {} spoke before it joined", connection.peer(), job->uid);
    return end_softly(connection);
  }
  const auto said = [&](auto event) {
    event.who = *connection.who;
    apply(*job, event);
  };
  if (auto* beat = std::get_if<Heartbeat>(&*message)) {
    beat->who = *connection.who;
    take_down(*job, *beat);
    said(std::move(*beat));
    connection.send(Pulse{});
  } else if (auto* finished = std::get_if<Finished>(&*message)) {
    said(*finished);
  } else if (auto* leave = std::get_if<Leave>(&*message)) {
    said(std::move(*leave));
    end_softly(connection);
  }
}

// Also of jobs that do not ask for TLS: a member that uses it all the same is then told so.
const net::TlsKey* Server::Impl::find_tls_key(std::string_view identity) const {
  const auto found = std::ranges::find_if(
      jobs_, [identity](const auto& entry) { return entry.second.tls_key.identity() == identity; });
  return found == jobs_.end() ? nullptr : &found->second.tls_key;
}

// Ties the connection to the member; false: the connection belongs to another one.
bool Server::Impl::take_join(ConnectionId id, Connection& connection, Job& job, const Join& join) {
  if (connection.who && *connection.who != join.who) {
    log_->warn("rendezvous: {} of job {} changed its seat", connection.peer(), job.uid);
    end_softly(connection);
    return false;
  }
  connection.who = join.who;
  ConnectionId& current = job.connections[join.who];
  if (const auto old = connections_.find(current); current != id && old != connections_.end()) {
    end_softly(old->second);  // the same process has connected anew
    dirty_.insert(current);
  }
  current = id;
  return true;
}

void Server::Impl::flush(ConnectionId id) {
  dirty_.erase(id);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  if (Status status = connection.write(); !status.ok()) return close(id, status.error().message);
  if (connection.ends && !connection.wants_to_write()) connection.shutdown_write();
  watch(id, connection, false);
}

void Server::Impl::close(ConnectionId id, const std::string& reason) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  // Out of the map first: the event below must not send to it.
  const Connection connection = std::move(found->second);
  connections_.erase(found);
  dirty_.erase(id);
  if (!connection.proved()) {
    --strangers_;
    log_->debug("rendezvous: a stranger is gone: {}", reason);
  }
  Job* job = find_job(connection.job_uid());
  if (job == nullptr || !connection.who) return;
  const auto current = job->connections.find(*connection.who);
  if (current == job->connections.end() || current->second != id) return;
  job->connections.erase(current);
  apply(*job, ConnectionClosed{*connection.who, reason});
}

void Server::Impl::end_softly(Connection& connection) {
  if (!connection.ends) connection.ends = monotonic_now() + kFarewell;
}

void Server::Impl::apply(Job& job, const Event& event) {
  const Phase before = job.state.phase;
  const Epoch epoch = job.state.epoch();
  const Actions actions = step(job.state, event, monotonic_now());
  for (const Action& action : actions) perform(job, action);
  job.deadline = next_deadline(job.state);
  if (job.state.phase != before || job.state.epoch() != epoch) {
    log_->info("rendezvous: job {}: {}, epoch {}, {} processes{}{}", job.uid,
               to_string(job.state.phase), job.state.latest, job.state.roster.size(),
               job.state.current() ? "" : ": ", job.state.current() ? "" : job.state.last_end);
  }
  changed(job);
}

// Rank 0 speaks for all, who compute the same steps.
void Server::Impl::take_down(Job& job, const Heartbeat& beat) {
  const State& state = job.state;
  if (state.current() && beat.epoch == state.epoch() && state.roster.front().peer.who == beat.who &&
      beat.progress.total_steps > 0) {
    job.progress = beat.progress;
  }
}

void Server::Impl::perform(Job& job, const Action& action) {
  if (const auto* assign = std::get_if<Assign>(&action)) {
    send(job, assign->to, assign->assignment);
  } else if (const auto* end = std::get_if<EndEpoch>(&action)) {
    send(job, end->to, *end);
  } else if (const auto* ask = std::get_if<AskReform>(&action)) {
    send(job, ask->to, *ask);
  } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
    ++job.refused;
    log_->warn("rendezvous: job {}: {} is refused: {}", job.uid, to_string(refuse->to.seat),
               refuse->sentence);
    send(job, refuse->to, *refuse, true);
  } else if (const auto* acknowledge = std::get_if<Acknowledge>(&action)) {
    send(job, acknowledge->to, *acknowledge);
  } else if (const auto* drop = std::get_if<Drop>(&action)) {
    const auto at = job.connections.find(drop->to);
    if (at == job.connections.end()) return;
    if (const auto found = connections_.find(at->second); found != connections_.end())
      end_softly(found->second);
    dirty_.insert(at->second);
    job.connections.erase(at);
  } else if (const auto* lost = std::get_if<Lost>(&action)) {
    log_->warn("rendezvous: job {}: {} was lost from epoch {} ({}): {}", job.uid,
               to_string(lost->who.seat), lost->epoch, to_string(lost->kind), lost->reason);
    if (job.losses.size() == kKeptLosses) job.losses.pop_front();
    job.losses.push_back({++job.number_of_losses, *lost, wall_now()});
  }
}

void Server::Impl::send(Job& job, const MemberId& to, const ServerMessage& message, bool last) {
  const auto at = job.connections.find(to);
  if (at == job.connections.end()) return;
  const auto found = connections_.find(at->second);
  if (found == connections_.end() || found->second.ends) return;
  found->second.send(message);
  if (last) end_softly(found->second);
  dirty_.insert(at->second);
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
