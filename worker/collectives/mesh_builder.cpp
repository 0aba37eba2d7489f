// Builds the streams of a mesh: build_mesh(), add_streams(), add_background(). Each connection is
// set up as follows:
//
//   lower rank (server)                          higher rank (client)
//     | <--------------------------------------- connects -- |
//     | -- with TLS: "TWS1", then the TLS handshake -------- |
//     | -- proof of the secret (common/net/handshake.h) ------- |
//     | <-- Hello: version, epoch, rank, stream, instances - |
//     | -- Reply: accepted, the server's instance and ------> |
//     |           perhaps an offer of shared memory, or      |
//     |           the reason for a refusal                   |
//     | <-- with an offer: 'S' if it has opened it, or 'T' --- |
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <list>
#include <optional>
#include <utility>

#include "common/net/handshake.h"
#include "common/net/message.h"
#include "common/net/tls.h"
#include "worker/collectives/mesh.h"
#include "worker/runtime/range.h"

namespace tilewright::collectives {
namespace {

struct Hello {
  std::uint64_t version = kMeshProtocolVersion;
  std::uint64_t epoch = 0;
  std::uint64_t client_instance = 0;
  std::uint64_t server_instance = 0;  // that the client expects
  std::int32_t rank = 0;              // of the client
  std::uint16_t world = 0;
  std::uint16_t stream = 0;
};
static_assert(sizeof(Hello) == 40);

// The first byte of a reply. The rest is the server's instance and its offer if it accepts, else
// the reason.
constexpr char kAccepted = 'W';
constexpr char kRejected = 'R';      // permanent in this epoch
constexpr char kRetry = 'N';         // the server is an older instance or still in an older epoch
constexpr char kOtherVersion = 'V';  // permanent
// The client's answer to an offer of shared memory.
constexpr char kShared = 'S';
constexpr char kNotShared = 'T';
constexpr std::size_t kMaxReplyBytes = 1000;
// Connections that have not proved the secret, in addition to one per stream and rank.
constexpr std::size_t kMaxStrangers = 256;
constexpr Duration kRetryDelay = std::chrono::milliseconds(20);
// Limit of one connection attempt. The builder does nothing else during an attempt.
constexpr Duration kConnectTimeout = std::chrono::seconds(1);
constexpr Duration kCloseTimeout = std::chrono::milliseconds(200);

// An accepted connection that is not yet authenticated.
struct Pending {
  net::Socket socket;
  net::Handshake handshake;
  MonotonicTime deadline;
  std::string input;           // the bytes received so far, of `wanted`
  bool greeting_sent = false;  // with TLS, after the TLS handshake
  int rank = -1;               // accepted as this rank, and waits for the answer to the offer
  int stream = 0;              // of that rank
  std::unique_ptr<SharedMemoryLink> memory = {};
  std::size_t wanted() const {
    if (rank >= 0) return 1;
    return handshake.complete() ? sizeof(Hello) : handshake.wanted();
  }
};

// A connection to a lower rank that is being set up. It has no separate deadline.
struct PendingConnection {
  int peer = 0;
  int stream = 0;
  net::Socket socket;  // if not connected, connect again at next_try
  std::optional<net::Handshake> handshake;
  std::string input;
  bool tls_agreed = false;      // the server has sent the TLS greeting
  bool hello_sent = false;      // waiting for the reply
  std::size_t reply_bytes = 0;  // length of the reply, once known
  MonotonicTime next_try{};
  std::string last_error = "not tried yet";
  // last_error describes a peer with another protocol or secret. Later attempts keep that message.
  bool incompatible = false;
  std::size_t wanted() const {
    if (!hello_sent) return handshake->wanted();
    return net::kMessagePrefixBytes + reply_bytes;
  }
};

using runtime::Range;

// The streams of a mesh that are built together, numbered from the first one.
class MeshBuilder {
 public:
  MeshBuilder(net::Listener& listener, const MeshConfig& config, Range streams,
              const net::SecretKey& key, MonotonicTime deadline, const net::WakeUp* cancel,
              PeerTransport* existing = nullptr)
      : listener_(listener),
        key_(key),
        wait_(deadline, cancel),
        context_("tilewright mesh of job " + config.job_uid),
        tls_key_(key, context_),
        config_(config),
        streams_(streams) {
    for (std::int64_t stream = streams.begin; stream < streams.end; ++stream) {
      auto links = std::make_unique<PeerTransport>(config.peers.size());
      links_.push_back(links.get());
      meshes_.push_back(std::make_unique<Mesh>(config, std::move(links)));
    }
    watched_ = links_;
    if (existing != nullptr) watched_.push_back(existing);
    mesh_ = meshes_.front().get();
    TW_CHECK(0 <= config.rank && config.rank < mesh_->world(), "rank {} of {}", config.rank,
             mesh_->world());
    TW_CHECK(mesh_->world() <= std::numeric_limits<std::uint16_t>::max(), "{} ranks",
             mesh_->world());
  }

  std::vector<std::unique_ptr<Mesh>> build() {
    for (int peer = 0; peer < mesh_->rank(); ++peer) {
      for (int stream = 0; stream < std::ssize(links_); ++stream) {
        PendingConnection& one = outgoing_.emplace_back();
        one.peer = peer;
        one.stream = stream;
      }
    }
    // connect() may wait for a rank that waits for this one, because a queue is full of connections
    // that were made before this loop accepted any.
    for (accept_connections(); missing() > 0; accept_connections()) {
      throw_if_cancelled_or_expired();
      for (PendingConnection& one : outgoing_) connect(one);
      wait_for_events();
      // A peer may complete its mesh and end. What it had sent until then may complete this one
      // too.
      const std::optional<Failure> lost = find_lost();
      for (PendingConnection& one : outgoing_) advance_outgoing(one);
      for (auto one = pending_.begin(); one != pending_.end();) {
        one = advance_pending(*one) ? std::next(one) : pending_.erase(one);
      }
      if (lost && missing() > 0) throw *lost;
    }
    return std::move(meshes_);
  }

 private:
  PeerTransport& links(int stream) const { return *links_[static_cast<std::size_t>(stream)]; }
  bool is_connected(int stream, int peer) const { return links(stream).socket(peer).connected(); }
  bool is_connected(const PendingConnection& one) const {
    return is_connected(one.stream, one.peer);
  }

  int missing() const {
    int count = 0;
    for (PeerTransport* links : links_) {
      for (int peer = 0; peer < mesh_->world(); ++peer) {
        count += peer != mesh_->rank() && !links->socket(peer).connected();
      }
    }
    return count;
  }

  void throw_if_cancelled_or_expired() const {
    const bool cancelled = wait_.cancel && wait_.cancel->signalled();
    if (!cancelled && monotonic_now() < wait_.deadline) return;
    throw Failure(
        ExitCode::kPeerLost,
        fmt::format("rank {} in membership epoch {}: {}: {}", mesh_->rank(), mesh_->epoch(),
                    cancelled ? "cancelled" : "the mesh is not complete by the deadline",
                    describe_missing()));
  }

  // A rank that disconnects does not rejoin this membership epoch.
  std::optional<Failure> find_lost() const {
    for (PeerTransport* links : watched_) {
      for (int peer = 0; peer < mesh_->world(); ++peer) {
        if (links->socket(peer).connected() && links->socket(peer).peer_closed()) {
          return mesh_->lost(peer, "closed its connection during the construction of the mesh");
        }
      }
    }
    return std::nullopt;
  }

  void wait_for_events() {
    std::vector<pollfd> fds;
    fds.push_back({listener_.fd(), POLLIN, 0});
    fds.push_back({wait_.cancel ? wait_.cancel->fd() : -1, POLLIN, 0});
    for (PeerTransport* links : watched_) {
      for (int peer = 0; peer < mesh_->world(); ++peer) {
        fds.push_back({links->socket(peer).fd(), POLLRDHUP, 0});
      }
    }
    MonotonicTime next = wait_.deadline;
    for (const Pending& one : pending_) {
      fds.push_back({one.socket.fd(), one.socket.poll_events(POLLIN), 0});
      next = std::min(next, one.deadline);
    }
    for (const PendingConnection& one : outgoing_) {
      if (is_connected(one)) continue;
      fds.push_back({one.socket.fd(), one.socket.poll_events(POLLIN), 0});
      if (!one.socket.connected()) next = std::min(next, one.next_try);
    }
    poll(fds.data(), fds.size(), net::poll_timeout(next));
  }

  // Client side.
  void connect(PendingConnection& one) {
    const MonotonicTime now = monotonic_now();
    if (is_connected(one) || one.socket.connected() || now < one.next_try) return;
    auto socket = net::connect_to(member(one.peer).address,
                                  {std::min(wait_.deadline, now + kConnectTimeout), wait_.cancel});
    if (!socket.ok()) return retry_later(one, socket.error().message);
    one.socket = std::move(socket).value();
    one.handshake.emplace(net::Role::kClient, key_, context_);
    one.input.clear();
    one.tls_agreed = false;
    one.hello_sent = false;
    one.reply_bytes = 0;
    if (!one.incompatible) one.last_error = "no answer yet";
  }

  // Connects again later: the peer may be a process of an older membership epoch that is about to
  // exit.
  void retry_later(PendingConnection& one, const std::string& why) {
    one.socket.close();
    one.next_try = monotonic_now() + kRetryDelay;
    one.last_error = why;
    one.incompatible = false;
  }
  void retry_later_incompatible(PendingConnection& one, const std::string& why) {
    retry_later(one, one.socket.peer() + " " + why);
    one.incompatible = true;
  }

  void advance_outgoing(PendingConnection& one) {
    while (one.socket.connected()) {
      const auto whole = fill(one.socket, one.input, one.wanted());
      if (!whole.ok()) {
        return retry_later(one, whole.error().message + " before it accepted this rank");
      }
      if (!*whole) return;
      if (one.hello_sent) {
        read_reply(one);
      } else if (tls() && !one.tls_agreed) {
        agree_on_tls(one, std::exchange(one.input, {}));
      } else {
        advance_proof(one, std::exchange(one.input, {}));
      }
    }
  }

  bool tls() const { return config_.tls; }
  const MeshPeer& member(int rank) const { return config_.peers[static_cast<std::size_t>(rank)]; }
  static std::string as_text(std::uint64_t instance) {
    return {reinterpret_cast<const char*>(&instance), sizeof instance};
  }

  void agree_on_tls(PendingConnection& one, const std::string& greeting) {
    if (greeting != net::kTlsGreeting) {
      return retry_later_incompatible(one, "does not use TLS, but this rank does");
    }
    one.tls_agreed = true;
    one.socket.connect_tls(tls_key_);
  }

  void advance_proof(PendingConnection& one, const std::string& input) {
    if (auto status = one.handshake->feed(input); !status.ok()) {
      return retry_later_incompatible(one, status.error().message);
    }
    std::string output = one.handshake->take_output();
    if (one.handshake->complete()) {
      const Hello hello{.epoch = mesh_->epoch(),
                        .client_instance = member(mesh_->rank()).instance_id,
                        .server_instance = member(one.peer).instance_id,
                        .rank = mesh_->rank(),
                        .world = static_cast<std::uint16_t>(mesh_->world()),
                        .stream = static_cast<std::uint16_t>(streams_.begin + one.stream)};
      output.append(reinterpret_cast<const char*>(&hello), sizeof hello);
      one.hello_sent = true;
    }
    if (!send(one.socket, output)) retry_later(one, one.socket.peer() + " disconnected");
  }

  // `offer` is empty if the server offers no shared memory.
  void connect_link(PendingConnection& one, const std::string& offer) {
    std::unique_ptr<SharedMemoryLink> memory;
    std::string problem = "it is on another host, or does not share memory";
    if (!offer.empty()) {
      if (config_.shared_memory != SharedMemory::kNever) {
        auto opened = SharedMemoryLink::open(offer);
        if (opened.ok()) {
          memory = std::move(opened).value();
        } else {
          problem = opened.error().message;
        }
      }
      // A server that ends has closed its memory, and closes its connection.
      if (!memory && config_.shared_memory == SharedMemory::kRequired &&
          net::wait_ready(one.socket.fd(), POLLRDHUP, net::within(kCloseTimeout)) ==
              net::Ready::kYes) {
        return retry_later(one, one.socket.peer() + " disconnected");
      }
      if (!send(one.socket, std::string(1, memory ? kShared : kNotShared)))
        return retry_later(one, one.socket.peer() + " disconnected");
    }
    if (!memory) check_may_use_tcp(one.peer, problem);
    links(one.stream).connect(one.peer, std::move(one.socket), std::move(memory));
  }

  void check_may_use_tcp(int peer, const std::string& problem) const {
    if (config_.shared_memory != SharedMemory::kRequired) return;
    throw Failure(ExitCode::kUnsupported, fmt::format("rank {} has no shared memory with {}: {}",
                                                      mesh_->rank(), mesh_->name(peer), problem));
  }

  void read_reply(PendingConnection& one) {
    net::MessageReader reader(kMaxReplyBytes);
    reader.append(one.input);
    const auto reply = reader.next();
    if (!reply.ok()) return retry_later(one, one.socket.peer() + " sent no reply");
    if (!reply->has_value()) {
      // The length prefix is complete, but the text is not.
      one.reply_bytes = net::message_length(one.input);
      return;
    }
    if ((*reply)->empty()) return retry_later(one, "an empty reply");
    const std::string text = (*reply)->substr(1);
    switch ((*reply)->front()) {
      case kAccepted:
        if (!text.starts_with(as_text(member(one.peer).instance_id))) {
          return retry_later(one, one.socket.peer() + " is another instance than expected");
        }
        return connect_link(one, text.substr(sizeof(std::uint64_t)));
      case kRejected:
        throw mesh_->lost(one.peer, "refused this rank: " + text);
      case kOtherVersion:
        throw Failure(ExitCode::kUnsupported,
                      fmt::format("{} refused this rank: {}", mesh_->name(one.peer), text));
      default:
        return retry_later(one, text);
    }
  }

  // Reads without blocking until `input` has `wanted` bytes; returns true when it has all of them.
  static Result<bool> fill(net::Socket& socket, std::string& input, std::size_t wanted) {
    while (input.size() < wanted) {
      const std::size_t have = input.size();
      input.resize(wanted);
      const auto got = socket.try_read(std::as_writable_bytes(std::span(input).subspan(have)));
      input.resize(have + (got.ok() ? *got : 0));
      if (!got.ok()) return got.error();
      if (*got == 0) return false;
    }
    return true;
  }

  // Server side. Accepts the connections in the queue; those that arrive meanwhile, perhaps without
  // end, wait for the next call.
  void accept_connections() {
    for (std::size_t i = 0; i < kMaxStrangers; ++i) {
      auto socket = listener_.try_accept().or_throw();
      if (!socket.connected()) return;
      add_pending(std::move(socket));
    }
  }

  void add_pending(net::Socket socket) {
    if (tls()) {
      if (!send(socket, std::string(net::kTlsGreeting))) return;
      socket.accept_tls([this](std::string_view identity) {
        return identity == tls_key_.identity() ? &tls_key_ : nullptr;
      });
    }
    make_room();
    Pending& one =
        pending_.emplace_back(Pending{.socket = std::move(socket),
                                      .handshake = {net::Role::kServer, key_, context_},
                                      .deadline = monotonic_now() + config_.handshake_timeout,
                                      .input = {}});
    if (!advance_pending(one)) pending_.pop_back();
  }

  // Closes the oldest connection that has not proved the secret if there are too many. A rank needs
  // one round trip for its proof, and connects again if its connection is closed.
  void make_room() {
    const auto is_stranger = [](const Pending& one) { return !one.handshake.complete(); };
    const auto strangers = std::ranges::count_if(pending_, is_stranger);
    if (std::cmp_less(strangers, kMaxStrangers + config_.peers.size() * links_.size())) return;
    const auto oldest = std::ranges::find_if(pending_, is_stranger);
    reject(*oldest, "did not send its rank before many others connected");
    pending_.erase(oldest);
  }

  // Sends the server's first message. Returns false if that is not yet possible. On an Error the
  // caller closes the connection.
  static Result<bool> send_greeting(Pending& one) {
    if (one.greeting_sent) return true;
    if (auto ready = one.socket.advance_tls(); !ready.ok() || !*ready) return ready;
    if (!send(one.socket, one.handshake.take_output())) {
      return Error{ExitCode::kPeerLost, one.socket.peer() + " disconnected"};
    }
    return one.greeting_sent = true;
  }

  // Messages of the handshake are short and the send buffer is empty, so the kernel accepts the
  // whole message unless the connection is broken.
  static bool send(net::Socket& socket, const std::string& text) {
    const auto sent = socket.try_write(std::as_bytes(std::span(text)));
    return sent.ok() && *sent == text.size();
  }

  bool reject(const Pending& one, const std::string& why) {
    ++rejected_count_;
    last_rejected_ = fmt::format("{} {}", one.socket.peer(), why);
    return false;
  }

  // Returns false when the connection is finished: rejected, or moved into the mesh.
  bool advance_pending(Pending& one) {
    while (true) {
      const auto greeting_sent = send_greeting(one);
      if (!greeting_sent.ok()) return reject(one, greeting_sent.error().message);
      const auto whole =
          *greeting_sent ? fill(one.socket, one.input, one.wanted()) : Result<bool>(false);
      if (!whole.ok()) return reject(one, "disconnected before it sent its rank");
      if (!*whole) {
        return monotonic_now() < one.deadline || reject(one, "did not send its rank in time");
      }
      const std::string input = std::exchange(one.input, {});
      if (one.rank >= 0) return handle_answer(one, input.front());
      if (one.handshake.complete()) {
        if (!handle_hello(one, input)) return false;
        continue;
      }
      if (auto status = one.handshake.feed(input); !status.ok()) {
        return reject(one, status.error().message);
      }
      if (!send(one.socket, one.handshake.take_output())) {
        return reject(one, "disconnected during authentication");
      }
    }
  }

  // Returns false when the connection is finished; true if it waits for an answer.
  bool handle_hello(Pending& one, const std::string& input) {
    Hello hello;
    std::memcpy(&hello, input.data(), sizeof hello);
    const auto [kind, reason] = check_hello(hello);
    const bool accepted = kind == kAccepted;
    std::string text = kind + (accepted ? as_text(member(mesh_->rank()).instance_id) : reason);
    std::string problem = "it is on another host";
    if (accepted && config_.shared_memory != SharedMemory::kNever && is_on_this_host(one.socket)) {
      auto memory = SharedMemoryLink::create();
      if (memory.ok()) {
        one.memory = std::move(memory).value();
        text += one.memory->offer();
      } else {
        problem = memory.error().message;
      }
    }
    const bool sent = send(one.socket, net::message_prefix(text.size()) + text);
    if (!accepted) return reject(one, "was refused: " + reason);
    if (!sent) return false;
    one.rank = hello.rank;
    one.stream = hello.stream - static_cast<int>(streams_.begin);
    if (one.memory) return true;
    check_may_use_tcp(hello.rank, problem);
    links(one.stream).connect(hello.rank, std::move(one.socket), nullptr);
    return false;
  }

  bool handle_answer(Pending& one, char answer) {
    if (answer != kShared && answer != kNotShared)
      return reject(one, "did not answer the offer of shared memory");
    if (is_connected(one.stream, one.rank)) return reject(one, "is connected twice");
    if (answer == kNotShared) {
      check_may_use_tcp(one.rank, "it cannot open the memory");
      one.memory.reset();
    } else {
      one.memory->close_offer();
    }
    links(one.stream).connect(one.rank, std::move(one.socket), std::move(one.memory));
    return false;
  }

  // Whether both ends of a connection have the same address. Processes that do are in one network
  // namespace, but perhaps in several PID namespaces.
  static bool is_on_this_host(const net::Socket& socket) {
    const auto own = socket.local_address(), other = net::parse_address(socket.peer());
    return own.ok() && other.ok() && own->host == other->host;
  }

  std::pair<char, std::string> check_hello(const Hello& hello) {
    if (hello.version != kMeshProtocolVersion) {
      return {kOtherVersion,
              fmt::format("it uses version {} of the mesh protocol, rank {} version {}; expected "
                          "the same release of Tilewright for all workers",
                          hello.version, mesh_->rank(), kMeshProtocolVersion)};
    }
    if (hello.epoch < mesh_->epoch()) {
      return {kRejected, fmt::format("membership epoch {} is over, the current one is {}",
                                     hello.epoch, mesh_->epoch())};
    }
    if (hello.epoch > mesh_->epoch()) {
      return {kRetry, fmt::format("rank {} is still in membership epoch {}, not yet in {}",
                                  mesh_->rank(), mesh_->epoch(), hello.epoch)};
    }
    if (hello.world != mesh_->world() || hello.rank <= mesh_->rank() ||
        hello.rank >= mesh_->world()) {
      return {kRejected, fmt::format("rank {} of {} must not connect to rank {} of {}", hello.rank,
                                     hello.world, mesh_->rank(), mesh_->world())};
    }
    const std::uint64_t own = member(mesh_->rank()).instance_id;
    if (hello.server_instance != own) {
      return {kRetry, fmt::format("this is instance {:016x} of rank {}, not {:016x}", own,
                                  mesh_->rank(), hello.server_instance)};
    }
    const std::uint64_t expected = member(hello.rank).instance_id;
    if (hello.client_instance != expected) {
      return {kRejected, fmt::format("instance {:016x} of rank {} is not in epoch {}, expected "
                                     "instance {:016x}",
                                     hello.client_instance, hello.rank, hello.epoch, expected)};
    }
    if (hello.stream < streams_.begin || hello.stream >= streams_.end) {
      return {kRejected, fmt::format("found stream {}, expected {} to {}", hello.stream,
                                     streams_.begin, streams_.end - 1)};
    }
    if (is_connected(hello.stream - static_cast<int>(streams_.begin), hello.rank)) {
      return {kRejected,
              fmt::format("stream {} of rank {} is already connected", hello.stream, hello.rank)};
    }
    return {kAccepted, ""};
  }

  std::string describe_missing() const {
    std::string text = "missing: ";
    const char* separator = "";
    int named = -1;  // once, not for each stream
    for (const PendingConnection& one : outgoing_) {
      if (is_connected(one) || one.peer == std::exchange(named, one.peer)) continue;
      text += fmt::format("{}{}: {}", separator, mesh_->name(one.peer), one.last_error);
      separator = "; ";
    }
    for (int peer = mesh_->rank() + 1; peer < mesh_->world(); ++peer) {
      if (std::ranges::all_of(
              links_, [peer](PeerTransport* links) { return links->socket(peer).connected(); })) {
        continue;
      }
      text += separator + mesh_->name(peer);
      separator = ", ";
    }
    if (rejected_count_ > 0) {
      text +=
          fmt::format("; rejected connections: {}, the last: {}", rejected_count_, last_rejected_);
    }
    return text;
  }

  net::Listener& listener_;
  const net::SecretKey& key_;
  net::Wait wait_;
  std::string context_;
  const net::TlsKey tls_key_;
  const MeshConfig config_;
  const Range streams_;
  std::vector<std::unique_ptr<Mesh>> meshes_;  // by stream, from streams_.begin
  std::vector<PeerTransport*> links_;          // of the meshes
  std::vector<PeerTransport*> watched_;        // the same, and those of a mesh that exists already
  const Mesh* mesh_ = nullptr;                 // the first of them
  std::vector<PendingConnection> outgoing_;
  std::list<Pending> pending_;
  int rejected_count_ = 0;
  std::string last_rejected_;
};

}  // namespace

std::unique_ptr<Mesh> build_mesh(net::Listener& listener, const MeshConfig& config,
                                 const net::SecretKey& key, MonotonicTime deadline,
                                 const net::WakeUp* cancel) {
  return std::move(MeshBuilder(listener, config, {0, 1}, key, deadline, cancel).build().front());
}

void add_streams(Mesh& mesh, int streams, net::Listener& listener, const net::SecretKey& key,
                 MonotonicTime deadline, const net::WakeUp* cancel) {
  if (streams <= mesh.streams()) return;
  MeshBuilder builder(listener, mesh.config(), {mesh.streams(), streams}, key, deadline, cancel,
                      dynamic_cast<PeerTransport*>(&mesh.transport()));
  for (std::unique_ptr<Mesh>& stream : builder.build()) mesh.add_stream(std::move(stream));
}

void add_background(Mesh& mesh, net::Listener& listener, const net::SecretKey& key,
                    MonotonicTime deadline, const net::WakeUp* cancel) {
  MeshBuilder builder(listener, mesh.config(), {mesh.streams(), mesh.streams() + 1}, key, deadline,
                      cancel, dynamic_cast<PeerTransport*>(&mesh.transport()));
  mesh.set_background(std::move(builder.build().front()));
}

}  // namespace tilewright::collectives
