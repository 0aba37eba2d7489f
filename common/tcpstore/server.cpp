#include "common/tcpstore/server.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/net/connect.h"
#include "common/net/event_loop.h"
#include "common/rendezvous/rejections.h"
#include "common/rendezvous/unauthenticated.h"
#include "common/tcpstore/connection.h"
#include "common/tcpstore/requests.h"

namespace tilewright::tcpstore {
namespace {

using rendezvous::Rejection;

constexpr Rejection kReasons[] = {
    Rejection::kConnections, Rejection::kUnauthenticated, Rejection::kSource,
    Rejection::kAddress,     Rejection::kJobConnections,  Rejection::kJobBuffers,
    Rejection::kJobData,     Rejection::kBuffers,         Rejection::kProtocol};

// Pause after accept() fails, most likely because file descriptors ran out.
constexpr Duration kAcceptPause = std::chrono::seconds(1);
// A store that has used its rate of requests continues after this time.
constexpr Duration kRatePause = std::chrono::milliseconds(50);
constexpr net::EventLoop::Id kListenerId = net::EventLoop::kFirstId;

}  // namespace

// One mutex guards all state. The thread of the loop holds it except while it waits, and no code
// blocks while it holds the mutex.
class Server::Impl {
 public:
  Impl(const Options& options, StoreFor store_for, net::Listener listener,
       std::shared_ptr<Logger> log);

  const net::Address& address() const { return listener_.local_address(); }
  void addresses_changed() {
    addresses_changed_ = true;
    loop_.wake();
  }
  std::map<StoreId, StoreUsage> stores() const;
  std::map<std::string, std::uint64_t> rejections() const;

 private:
  using ConnectionId = Store::Client;
  static_assert(std::is_same_v<ConnectionId, net::EventLoop::Id>);

  struct SharedStore {
    SharedStore(StoreId store_id, StoreLimits limits) : id(std::move(store_id)), store(limits) {}
    const StoreId id;
    Store store;
    std::set<ConnectionId> connections;
    std::size_t buffered_bytes = 0;
    std::size_t counted_bytes = 0;  // its share of stored_bytes_
    rendezvous::TokenBucket requests;
    std::optional<MonotonicTime> resume_at;  // set while it is above its rate
  };
  struct Client {
    Connection connection;
    SharedStore* store = nullptr;  // null: its address has none yet
  };
  using Clients = std::map<ConnectionId, Client>;

  void iterate();
  void handle(ConnectionId id, std::uint32_t events);
  MonotonicTime next_wake() const;
  void serve_deadlines();
  void accept_some();
  void add_client(net::Socket socket);
  void watch_listener(std::uint32_t events);
  // Sets the events of epoll(7) for the client's state.
  void watch(ConnectionId id, const Client& client);
  static std::uint32_t events_of(const Client& client) {
    return client.connection.events(client.store != nullptr && !client.store->resume_at);
  }
  // Finds the store of the client; false: its address has none.
  bool admit(ConnectionId id);
  void hold(ConnectionId id);
  void check_addresses();
  void read_from(ConnectionId id);
  // Carries out the requests that have arrived and sends the replies.
  void serve(ConnectionId id);
  // Stops early if the client does not read the replies or the store is above its rate.
  Status carry_out_requests(ConnectionId id, Client& client);
  Status take_request(ConnectionId id, Client& client, Request request);
  void send_woken(SharedStore& shared);
  void account(Client& client);
  void enforce_limits(SharedStore& shared);
  // Turns away the connection that buffers the most.
  void reject_largest(const SharedStore& shared, Rejection reason, const std::string& why);
  void reject(ConnectionId id, Rejection reason, const std::string& why);
  void close(ConnectionId id);
  void close_all(const SharedStore& shared);

  const Options options_;
  const StoreFor store_for_;
  Clock& clock_;
  net::Listener listener_;
  std::shared_ptr<Logger> log_;
  std::atomic<bool> addresses_changed_ = false;

  mutable std::mutex mutex_;
  std::map<StoreId, SharedStore> stores_;  // each has connections
  Clients clients_;
  std::set<ConnectionId> dirty_;  // clients to serve: replies to send or requests that waited
  rendezvous::UnauthenticatedConnections held_;
  rendezvous::Rejections rejections_;
  std::size_t buffered_bytes_ = 0;  // of all connections
  std::size_t stored_bytes_ = 0;    // of all stores
  ConnectionId next_id_ = kListenerId + 1;
  std::optional<MonotonicTime> resume_accept_at_;
  MonotonicTime now_;    // time of the current iteration
  net::EventLoop loop_;  // last: its thread uses the others
};

// --- calls from the owner ---

Result<std::unique_ptr<Server>> Server::start(const Options& options, StoreFor store_for,
                                              std::shared_ptr<Logger> log) {
  Result<net::Listener> listener = net::Listener::bind(options.listen);
  if (!listener.ok()) return listener.error();
  return std::unique_ptr<Server>(new Server(std::make_unique<Impl>(
      options, std::move(store_for), std::move(listener).value(), std::move(log))));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
const net::Address& Server::address() const { return impl_->address(); }
void Server::addresses_changed() { impl_->addresses_changed(); }
std::map<StoreId, StoreUsage> Server::stores() const { return impl_->stores(); }
std::map<std::string, std::uint64_t> Server::rejections() const { return impl_->rejections(); }

std::map<StoreId, StoreUsage> Server::Impl::stores() const {
  const std::scoped_lock lock(mutex_);
  std::map<StoreId, StoreUsage> result;
  for (const auto& [id, shared] : stores_)
    result[id] = {.connections = shared.connections.size(),
                  .buffered_bytes = shared.buffered_bytes,
                  .entries = shared.store.entries(),
                  .bytes = shared.store.bytes(),
                  .waiting = shared.store.waiting()};
  return result;
}

std::map<std::string, std::uint64_t> Server::Impl::rejections() const {
  const std::scoped_lock lock(mutex_);
  return rejections_.counts();
}

// --- the server's thread ---

Server::Impl::Impl(const Options& options, StoreFor store_for, net::Listener listener,
                   std::shared_ptr<Logger> log)
    : options_(options),
      store_for_(std::move(store_for)),
      clock_(*options.clock),
      listener_(std::move(listener)),
      log_(std::move(log)),
      held_(options.limits.unauthenticated, options.limits.unauthenticated_per_source),
      rejections_(log_, "tcpstore", kReasons),
      now_(clock_.now()),
      loop_(clock_, mutex_) {
  loop_.watch(kListenerId, listener_.fd(), EPOLLIN);
  loop_.start([this] { return next_wake(); }, [this](Duration) { iterate(); });
}

void Server::Impl::iterate() {
  now_ = clock_.now();
  loop_.take_events([this](ConnectionId id, std::uint32_t events) { handle(id, events); });
  if (addresses_changed_.exchange(false)) check_addresses();
  serve_deadlines();
  // A closed connection may wake other clients.
  while (!dirty_.empty()) serve(*dirty_.begin());
}

void Server::Impl::handle(ConnectionId id, std::uint32_t events) {
  if (id == kListenerId) {
    accept_some();
  } else if (events & EPOLLIN) {
    read_from(id);  // also finds that the client has closed the connection
  } else if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) {
    // No client closes its sending direction alone.
    close(id);
  } else {
    dirty_.insert(id);
  }
}

MonotonicTime Server::Impl::next_wake() const {
  MonotonicTime wake = resume_accept_at_.value_or(clock_.now() + kLongestWait);
  for (const auto& [id, shared] : stores_)
    if (shared.resume_at) wake = std::min(wake, *shared.resume_at);
  if (held_.size() > 0) {
    for (const auto& [id, client] : clients_)
      if (client.store == nullptr)
        wake = std::min(wake, client.connection.opened + options_.address_timeout);
  }
  return wake;
}

void Server::Impl::serve_deadlines() {
  for (auto& [id, shared] : stores_) {
    if (!shared.resume_at || *shared.resume_at > now_) continue;
    shared.resume_at.reset();
    dirty_.insert(shared.connections.begin(), shared.connections.end());
  }
  if (held_.size() > 0) {
    std::vector<ConnectionId> over;
    for (const auto& [id, client] : clients_)
      if (client.store == nullptr && client.connection.opened + options_.address_timeout <= now_)
        over.push_back(id);
    for (const ConnectionId id : over)
      reject(id, Rejection::kAddress, "no job has a pod with this address");
  }
  if (resume_accept_at_ && *resume_accept_at_ <= now_) {
    resume_accept_at_.reset();
    watch_listener(EPOLLIN);
  }
}

void Server::Impl::watch_listener(std::uint32_t events) {
  loop_.change(kListenerId, listener_.fd(), events);
}

void Server::Impl::watch(ConnectionId id, const Client& client) {
  loop_.change(id, client.connection.fd(), events_of(client));
}

void Server::Impl::accept_some() {
  const Status status =
      listener_.accept_some([this](net::Socket socket) { add_client(std::move(socket)); });
  if (status.ok()) return;
  log_->warn("tcpstore: {}", status.error().message);
  resume_accept_at_ = now_ + kAcceptPause;
  watch_listener(0);
}

void Server::Impl::add_client(net::Socket socket) {
  auto address = net::parse_address(socket.peer());
  if (!address.ok()) return;  // it has disconnected
  if (clients_.size() >= options_.limits.connections) {
    rejections_.add(Rejection::kConnections, "", socket.peer(),
                    fmt::format("all {} connections are in use", clients_.size()), now_);
    return;
  }
  const ConnectionId id = next_id_++;
  const auto [at, added] = clients_.try_emplace(
      id, Client{Connection(std::move(socket), std::move(address).value(), now_)});
  loop_.watch(id, at->second.connection.fd(), events_of(at->second));
  if (!admit(id)) hold(id);
}

bool Server::Impl::admit(ConnectionId id) {
  Client& client = clients_.at(id);
  const std::optional<StoreId> store_id = store_for_(client.connection.address());
  if (!store_id) return false;
  held_.remove(id);
  const auto [at, added] = stores_.try_emplace(*store_id, *store_id, options_.store_limits);
  SharedStore& shared = at->second;
  client.store = &shared;
  shared.connections.insert(id);
  if (shared.connections.size() > options_.store_share.connections) {
    reject(
        id, Rejection::kJobConnections,
        fmt::format("the job has {} connections, the maximum", options_.store_share.connections));
    return true;
  }
  if (added) log_->debug("tcpstore: job {} has its first client", *store_id);
  account(client);
  watch(id, client);
  return true;
}

void Server::Impl::hold(ConnectionId id) {
  const net::Address& address = clients_.at(id).connection.address();
  const std::string source = net::source_network(address.host);
  const auto evicted = held_.add(id, source);
  if (!evicted) return;
  reject(evicted->id, evicted->share_used ? Rejection::kSource : Rejection::kUnauthenticated,
         fmt::format("{} connections{} wait for a job with a pod of their address, and this one "
                     "is the oldest",
                     evicted->share_used ? options_.limits.unauthenticated_per_source
                                         : options_.limits.unauthenticated,
                     evicted->share_used ? " from " + source : ""));
}

void Server::Impl::check_addresses() {
  std::vector<ConnectionId> held, withdrawn;
  for (const auto& [id, client] : clients_) {
    if (client.store == nullptr) {
      held.push_back(id);
    } else if (store_for_(client.connection.address()) != client.store->id) {
      withdrawn.push_back(id);
    }
  }
  for (const ConnectionId id : withdrawn) {
    const Client& client = clients_.at(id);
    log_->debug("tcpstore: {} does not belong to job {} any more", client.connection.peer(),
                client.store->id);
    close(id);
  }
  for (const ConnectionId id : held) admit(id);
}

void Server::Impl::read_from(ConnectionId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  if (!found->second.connection.read().ok()) return close(id);
  dirty_.insert(id);
}

void Server::Impl::serve(ConnectionId id) {
  dirty_.erase(id);
  const auto found = clients_.find(id);
  if (found == clients_.end() || found->second.store == nullptr) return;
  Client& client = found->second;
  SharedStore& shared = *client.store;
  while (true) {
    if (Status status = carry_out_requests(id, client); !status.ok())
      return reject(
          id, status.error().code == ExitCode::kMemory ? Rejection::kJobData : Rejection::kProtocol,
          status.error().message);
    const bool paused = !client.connection.reads_replies();
    if (!client.connection.write().ok()) return close(id);
    if (!paused || !client.connection.reads_replies() || shared.resume_at) break;
  }
  watch(id, client);
  account(client);
  enforce_limits(shared);
}

Status Server::Impl::carry_out_requests(ConnectionId id, Client& client) {
  SharedStore& shared = *client.store;
  while (!shared.resume_at) {
    if (!shared.requests.take(0, options_.store_share.messages_per_second, now_)) {
      shared.resume_at = now_ + kRatePause;
      for (const ConnectionId other : shared.connections) watch(other, clients_.at(other));
      break;
    }
    Result<std::optional<Request>> request = client.connection.next();
    if (!request.ok()) return request.error();
    if (!request->has_value()) break;
    if (Status status = take_request(id, client, *std::move(request).value()); !status.ok())
      return status;
  }
  return {};
}

Status Server::Impl::take_request(ConnectionId id, Client& client, Request request) {
  SharedStore& shared = *client.store;
  const bool is_first = !std::exchange(client.connection.validated, true);
  if (is_first != (request.operation == Operation::kValidate))
    return Error{
        ExitCode::kUsage,
        fmt::format("{} as {} request, expected VALIDATE as the first request and only there",
                    to_string(request.operation), is_first ? "the first" : "a later")};
  const std::size_t bytes = request.bytes;
  std::string reply;
  Status status = execute(shared.store, id, std::move(request), reply);
  shared.requests.owe(rendezvous::message_cost(bytes + reply.size()));
  stored_bytes_ += shared.store.bytes() - std::exchange(shared.counted_bytes, shared.store.bytes());
  client.connection.send(reply);
  send_woken(shared);
  return status;
}

void Server::Impl::send_woken(SharedStore& shared) {
  for (const ConnectionId woken : shared.store.take_woken()) {
    const auto found = clients_.find(woken);
    if (found == clients_.end()) continue;
    found->second.connection.send({&kStopWaiting, 1});
    dirty_.insert(woken);
  }
}

void Server::Impl::account(Client& client) {
  const std::size_t before = std::exchange(client.connection.accounted, client.connection.memory());
  buffered_bytes_ += client.connection.accounted - before;
  client.store->buffered_bytes += client.connection.accounted - before;
}

void Server::Impl::enforce_limits(SharedStore& shared) {
  // Either may close the last connection of `shared` and end it.
  if (buffered_bytes_ > options_.limits.buffered_bytes) {
    const auto most = std::ranges::max_element(
        stores_, {}, [](const auto& entry) { return entry.second.buffered_bytes; });
    return reject_largest(
        most->second, Rejection::kBuffers,
        fmt::format("the messages of all jobs use {} bytes of memory, at most {} are allowed, and "
                    "this job uses the most",
                    buffered_bytes_, options_.limits.buffered_bytes));
  }
  if (shared.buffered_bytes > options_.store_share.buffered_bytes)
    return reject_largest(
        shared, Rejection::kJobBuffers,
        fmt::format("the job's messages use {} bytes of memory, at most {} are allowed",
                    shared.buffered_bytes, options_.store_share.buffered_bytes));
  if (stored_bytes_ > options_.stored_bytes) {
    const auto most = std::ranges::max_element(
        stores_, {}, [](const auto& entry) { return entry.second.counted_bytes; });
    const ConnectionId first = *most->second.connections.begin();
    rejections_.add(Rejection::kJobData, most->first, clients_.at(first).connection.peer(),
                    fmt::format("the stores of all jobs use {} bytes of memory, at most {} are "
                                "allowed, and this one, which uses the most, is discarded",
                                stored_bytes_, options_.stored_bytes),
                    now_);
    close_all(most->second);
  }
}

void Server::Impl::reject_largest(const SharedStore& shared, Rejection reason,
                                  const std::string& why) {
  const auto largest = std::ranges::max_element(shared.connections, {}, [this](ConnectionId id) {
    return clients_.at(id).connection.accounted;
  });
  reject(*largest, reason, why);
}

void Server::Impl::reject(ConnectionId id, Rejection reason, const std::string& why) {
  const Client& client = clients_.at(id);
  rejections_.add(reason, client.store == nullptr ? "" : client.store->id, client.connection.peer(),
                  why, now_);
  close(id);
}

void Server::Impl::close(ConnectionId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  held_.remove(id);
  SharedStore* const shared = found->second.store;
  const std::size_t accounted = found->second.connection.accounted;
  clients_.erase(found);
  dirty_.erase(id);
  if (shared == nullptr) return;
  buffered_bytes_ -= accounted;
  shared->buffered_bytes -= accounted;
  shared->connections.erase(id);
  if (shared->connections.empty()) {
    stored_bytes_ -= shared->counted_bytes;
    log_->debug("tcpstore: the last client of job {} has disconnected; its {} keys are discarded",
                shared->id, shared->store.size());
    stores_.erase(StoreId(shared->id));
    return;
  }
  shared->store.remove_client(id);
  stored_bytes_ +=
      shared->store.bytes() - std::exchange(shared->counted_bytes, shared->store.bytes());
  send_woken(*shared);
}

void Server::Impl::close_all(const SharedStore& shared) {
  for (const ConnectionId id : std::vector(shared.connections.begin(), shared.connections.end()))
    close(id);
}

}  // namespace tilewright::tcpstore
