// How a mesh comes to be: build_mesh.
//
//   lower rank                                         higher rank
//     | <------------------------------------- connects --|
//     | -- under TLS: "TWS1", then all else inside ------ |
//     | -- proof of the secret (common/net/secret.h) ---- |
//     | <--------------- Hello: epoch, rank, world -------|
//     | -- Verdict: welcome, or a sentence why not -----> |
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <optional>

#include "common/net/message.h"
#include "common/net/tls.h"
#include "worker/collectives/mesh.h"

namespace tilewright::collectives {
namespace {

struct Hello {
  std::uint64_t epoch = 0;
  std::int32_t rank = 0;
  std::int32_t world = 0;
};
static_assert(sizeof(Hello) == 16);

// The first byte of a verdict; the rest is a sentence.
constexpr char kWelcome = 'W';
constexpr char kRefused = 'R';  // for good
constexpr char kNotYet = 'N';   // the server is of an older epoch: try again
constexpr std::size_t kMaxVerdictBytes = 1000;
constexpr std::size_t kMaxPending = 64;
constexpr Duration kRetryPause = std::chrono::milliseconds(20);
// One try to reach a host that may be dead; nothing else is served meanwhile.
constexpr Duration kConnectLimit = std::chrono::seconds(1);

// An accepted connection that has not yet shown who it is.
struct Pending {
  net::Socket socket;
  net::Handshake handshake;
  MonotonicTime deadline;
  std::string input;     // what has come of `wanted` bytes
  bool greeted = false;  // under TLS not before its own handshake
  std::size_t wanted() const { return handshake.complete() ? sizeof(Hello) : handshake.wanted(); }
};

// A connection to a lower rank on its way; it waits as long as the mesh does.
struct Outgoing {
  int peer = 0;
  net::Socket socket;  // not connected: to be tried again at next_try
  std::optional<net::Handshake> handshake;
  std::string input;
  bool tls_agreed = false;  // with TLS: the server has said that it speaks it, too
  bool introduced = false;  // the Hello is sent, the verdict awaited
  std::size_t verdict = 0;  // its bytes, once known
  MonotonicTime next_try{};
  std::string last_error = "not tried yet";
  bool unlike = false;  // last_error tells of a peer that speaks another way, as it will again
  std::size_t wanted() const {
    if (!introduced) return handshake->wanted();
    return net::kMessagePrefixBytes + verdict;
  }
};

}  // namespace

class MeshBuilder {
 public:
  MeshBuilder(net::Listener& listener, const MeshConfig& config, const net::SecretKey& key,
              MonotonicTime deadline, const net::WakeUp* cancel)
      : listener_(listener),
        key_(key),
        wait_(deadline, cancel),
        context_("tilewright mesh of job " + config.job_uid),
        tls_key_(key, context_),
        mesh_(new Mesh(config, std::vector<net::Socket>(config.peers.size()))) {
    TW_CHECK(0 <= config.rank && config.rank < mesh_->world(), "rank {} of {}", config.rank,
             mesh_->world());
  }

  std::unique_ptr<Mesh> build() {
    for (int peer = 0; peer < mesh_->rank(); ++peer) outgoing_.emplace_back().peer = peer;
    while (missing() > 0) {
      throw_if_ended();
      for (Outgoing& one : outgoing_) connect(one);
      await_news();
      throw_if_lost();
      for (Outgoing& one : outgoing_) converse(one);
      if (pending_.size() < kMaxPending) greet();
      for (auto one = pending_.begin(); one != pending_.end();) {
        one = serve(*one) ? std::next(one) : pending_.erase(one);
      }
    }
    return std::move(mesh_);
  }

 private:
  int missing() const {
    return static_cast<int>(std::ranges::count_if(
               mesh_->sockets_, [](const auto& socket) { return !socket.connected(); })) -
           1;
  }

  void throw_if_ended() const {
    const bool cancelled = wait_.cancel && wait_.cancel->signalled();
    if (!cancelled && monotonic_now() < wait_.deadline) return;
    throw Failure(ExitCode::kPeerLost,
                  fmt::format("rank {} of epoch {}: {}: {}", mesh_->rank(), mesh_->epoch(),
                              cancelled ? "cancelled" : "the mesh is not complete by the deadline",
                              who_is_missing()));
  }

  // A rank that was here and is gone does not come back in this epoch.
  void throw_if_lost() {
    for (int peer = 0; peer < mesh_->world(); ++peer) {
      if (mesh_->socket(peer).connected() && mesh_->socket(peer).peer_closed()) {
        throw mesh_->lost(peer, "closed its connection while the mesh was built");
      }
    }
  }

  void await_news() {
    std::vector<pollfd> fds;
    fds.push_back({pending_.size() < kMaxPending ? listener_.fd() : -1, POLLIN, 0});
    fds.push_back({wait_.cancel ? wait_.cancel->fd() : -1, POLLIN, 0});
    for (const auto& socket : mesh_->sockets_) fds.push_back({socket.fd(), POLLRDHUP, 0});
    MonotonicTime next = wait_.deadline;
    for (const Pending& one : pending_) {
      fds.push_back({one.socket.fd(), one.socket.poll_events(POLLIN), 0});
      next = std::min(next, one.deadline);
    }
    for (const Outgoing& one : outgoing_) {
      if (mesh_->socket(one.peer).connected()) continue;
      fds.push_back({one.socket.fd(), one.socket.poll_events(POLLIN), 0});
      if (!one.socket.connected()) next = std::min(next, one.next_try);
    }
    poll(fds.data(), fds.size(), net::poll_timeout(next));
  }

  // Client's end.
  void connect(Outgoing& one) {
    const MonotonicTime now = monotonic_now();
    if (mesh_->socket(one.peer).connected() || one.socket.connected() || now < one.next_try) return;
    auto socket = net::connect_to(mesh_->config_.peers[static_cast<std::size_t>(one.peer)],
                                  {std::min(wait_.deadline, now + kConnectLimit), wait_.cancel});
    if (!socket.ok()) return try_later(one, socket.error().message);
    one.socket = std::move(socket).value();
    one.handshake.emplace(net::Role::kClient, key_, context_);
    one.input.clear();
    one.tls_agreed = false;
    one.introduced = false;
    one.verdict = 0;
    if (!one.unlike) one.last_error = "it has not answered";
  }

  // Perhaps a process of an older epoch that is on its way out.
  void try_later(Outgoing& one, const std::string& why) {
    one.socket.close();
    one.next_try = monotonic_now() + kRetryPause;
    one.last_error = why;
    one.unlike = false;
  }
  void try_later_unlike(Outgoing& one, const std::string& why) {
    try_later(one, one.socket.peer() + " " + why);
    one.unlike = true;
  }

  void converse(Outgoing& one) {
    while (one.socket.connected()) {
      const auto whole = fill(one.socket, one.input, one.wanted());
      if (!whole.ok()) {
        return try_later(one, whole.error().message + " before it had admitted this rank");
      }
      if (!*whole) return;
      if (one.introduced) {
        read_verdict(one);
      } else if (tls() && !one.tls_agreed) {
        agree_on_tls(one, std::exchange(one.input, {}));
      } else {
        prove(one, std::exchange(one.input, {}));
      }
    }
  }

  bool tls() const { return mesh_->config_.tls; }

  void agree_on_tls(Outgoing& one, const std::string& greeting) {
    if (greeting != net::kTlsGreeting) {
      return try_later_unlike(one, "does not use TLS, as this rank does");
    }
    one.tls_agreed = true;
    one.socket.connect_tls(tls_key_);
  }

  void prove(Outgoing& one, const std::string& input) {
    if (auto status = one.handshake->feed(input); !status.ok()) {
      return try_later_unlike(one, status.error().message);
    }
    std::string output = one.handshake->take_output();
    if (one.handshake->complete()) {
      const Hello hello{mesh_->epoch(), mesh_->rank(), mesh_->world()};
      output.append(reinterpret_cast<const char*>(&hello), sizeof hello);
      one.introduced = true;
    }
    if (!send(one.socket, output)) try_later(one, one.socket.peer() + " went away");
  }

  void read_verdict(Outgoing& one) {
    net::MessageReader reader(kMaxVerdictBytes);
    reader.append(one.input);
    const auto verdict = reader.next();
    if (!verdict.ok()) return try_later(one, one.socket.peer() + " sent no verdict");
    if (!verdict->has_value()) {
      // The prefix is here: so many bytes more. An empty verdict would have been whole.
      one.verdict = net::message_length(one.input);
      return;
    }
    const std::string& text = **verdict;
    if (text == std::string(1, kWelcome)) {
      mesh_->socket(one.peer) = std::move(one.socket);
    } else if (text.substr(0, 1) == std::string(1, kRefused)) {
      throw mesh_->lost(one.peer, "refused this rank: " + text.substr(1));
    } else {
      try_later(one, text.empty() ? "an empty verdict" : text.substr(1));
    }
  }

  // Reads on towards `wanted` bytes; true when they are all there.
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

  // Server's end.
  void greet() {
    auto socket = listener_.try_accept().or_throw();
    if (!socket.connected()) return;
    if (tls()) {
      if (!send(socket, std::string(net::kTlsGreeting))) return;
      socket.accept_tls([this](std::string_view identity) {
        return identity == tls_key_.identity() ? &tls_key_ : nullptr;
      });
    }
    pending_.push_back({.socket = std::move(socket),
                        .handshake = net::Handshake(net::Role::kServer, key_, context_),
                        .deadline = monotonic_now() + mesh_->config_.handshake_limit,
                        .input = {}});
  }

  // The first word; false: not yet. An Error: the peer is not worth waiting for.
  static Result<bool> say_hello(Pending& one) {
    if (one.greeted) return true;
    if (auto ready = one.socket.advance_tls(); !ready.ok() || !*ready) return ready;
    if (!send(one.socket, one.handshake.take_output())) {
      return Error{ExitCode::kPeerLost, one.socket.peer() + " went away"};
    }
    return one.greeted = true;
  }

  // What is sent here is short and the connection fresh: the kernel takes it whole or the peer is
  // not worth waiting for.
  static bool send(net::Socket& socket, const std::string& text) {
    const auto sent = socket.try_write(std::as_bytes(std::span(text)));
    return sent.ok() && *sent == text.size();
  }

  bool turn_away(const Pending& one, const std::string& why) {
    ++turned_away_;
    last_turned_away_ = fmt::format("{} {}", one.socket.peer(), why);
    return false;
  }

  // False when the connection is to be dropped (or has found its place).
  bool serve(Pending& one) {
    while (true) {
      const auto greeted = say_hello(one);
      if (!greeted.ok()) return turn_away(one, greeted.error().message);
      const auto whole = *greeted ? fill(one.socket, one.input, one.wanted()) : Result<bool>(false);
      if (!whole.ok()) return turn_away(one, "went away before it said who it is");
      if (!*whole) {
        return monotonic_now() < one.deadline || turn_away(one, "did not say who it is in time");
      }
      const std::string input = std::exchange(one.input, {});
      if (one.handshake.complete()) return admit(one, input);
      if (auto status = one.handshake.feed(input); !status.ok()) {
        return turn_away(one, status.error().message);
      }
      if (!send(one.socket, one.handshake.take_output())) {
        return turn_away(one, "went away during the proof");
      }
    }
  }

  bool admit(Pending& one, const std::string& input) {
    Hello hello;
    std::memcpy(&hello, input.data(), sizeof hello);
    const auto [verdict, sentence] = judge(hello);
    const std::string text = verdict + sentence;
    const bool sent = send(one.socket, net::message_prefix(text.size()) + text);
    if (verdict != kWelcome) return turn_away(one, "was refused: " + sentence);
    if (sent) mesh_->socket(hello.rank) = std::move(one.socket);
    return false;
  }

  std::pair<char, std::string> judge(const Hello& hello) {
    if (hello.epoch < mesh_->epoch()) {
      return {kRefused,
              fmt::format("epoch {} is over, this is epoch {}", hello.epoch, mesh_->epoch())};
    }
    if (hello.epoch > mesh_->epoch()) {
      return {kNotYet, fmt::format("rank {} is still in epoch {}, not yet in epoch {}",
                                   mesh_->rank(), mesh_->epoch(), hello.epoch)};
    }
    if (hello.world != mesh_->world() || hello.rank <= mesh_->rank() ||
        hello.rank >= mesh_->world()) {
      return {kRefused, fmt::format("rank {} of {} does not connect to rank {} of {}", hello.rank,
                                    hello.world, mesh_->rank(), mesh_->world())};
    }
    if (mesh_->socket(hello.rank).connected()) {
      return {kRefused, fmt::format("rank {} is connected already", hello.rank)};
    }
    return {kWelcome, ""};
  }

  std::string who_is_missing() const {
    std::string text = "missing: ";
    const char* separator = "";
    for (const Outgoing& one : outgoing_) {
      if (mesh_->socket(one.peer).connected()) continue;
      text += fmt::format("{}{}: {}", separator, mesh_->name(one.peer), one.last_error);
      separator = "; ";
    }
    for (int peer = mesh_->rank() + 1; peer < mesh_->world(); ++peer) {
      if (mesh_->socket(peer).connected()) continue;
      text += separator + mesh_->name(peer);
      separator = ", ";
    }
    if (turned_away_ > 0) {
      text += fmt::format("; connections turned away: {}, the last: {}", turned_away_,
                          last_turned_away_);
    }
    return text;
  }

  net::Listener& listener_;
  const net::SecretKey& key_;
  net::Wait wait_;
  std::string context_;
  const net::TlsKey tls_key_;
  std::unique_ptr<Mesh> mesh_;
  std::vector<Outgoing> outgoing_;
  std::list<Pending> pending_;
  int turned_away_ = 0;
  std::string last_turned_away_;
};

std::unique_ptr<Mesh> build_mesh(net::Listener& listener, const MeshConfig& config,
                                 const net::SecretKey& key, MonotonicTime deadline,
                                 const net::WakeUp* cancel) {
  return MeshBuilder(listener, config, key, deadline, cancel).build();
}

}  // namespace tilewright::collectives
