// How a mesh comes to be: build_mesh.
//
//   lower rank                                         higher rank
//     | <------------------------------------- connects --|
//     | -- proof of the secret (common/net/secret.h) ---- |
//     | <--------------- Hello: epoch, rank, world -------|
//     | -- Verdict: welcome, or a sentence why not -----> |
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>

#include "common/net/message.h"
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

// An accepted connection that has not yet shown who it is.
struct Pending {
  net::Socket socket;
  net::Handshake handshake;
  MonotonicTime deadline;
  std::string input;  // what has come of `wanted` bytes
  std::size_t wanted() const { return handshake.complete() ? sizeof(Hello) : handshake.wanted(); }
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
        mesh_(new Mesh(config, std::vector<net::Socket>(config.peers.size()))) {
    TW_CHECK(0 <= config.rank && config.rank < mesh_->world(), "rank {} of {}", config.rank,
             mesh_->world());
  }

  std::unique_ptr<Mesh> build() {
    for (int peer = 0; peer < mesh_->rank(); ++peer) connect(peer);
    while (missing() > 0) accept_some();
    return std::move(mesh_);
  }

 private:
  int missing() const {
    return static_cast<int>(std::ranges::count_if(
               mesh_->sockets_, [](const auto& socket) { return !socket.connected(); })) -
           1;
  }

  void throw_if_ended(const std::string& waiting_for) const {
    const bool cancelled = wait_.cancel && wait_.cancel->signalled();
    if (!cancelled && monotonic_now() < wait_.deadline) return;
    throw Failure(ExitCode::kPeerLost,
                  fmt::format("rank {} of epoch {}: {}: {}", mesh_->rank(), mesh_->epoch(),
                              cancelled ? "cancelled" : "the mesh is not complete by the deadline",
                              waiting_for));
  }

  // Client's end.
  void connect(int peer) {
    const net::Address& address = mesh_->config_.peers[static_cast<std::size_t>(peer)];
    while (true) {
      auto socket = net::connect_to(address, wait_, net::Retry::kUntilDeadline);
      const Status status = socket.ok() ? introduce(peer, *socket) : Status(socket.error());
      if (status.ok()) {
        mesh_->socket(peer) = std::move(socket).value();
        return;
      }
      throw_if_ended(fmt::format("{}: {}", mesh_->name(peer), status.error().message));
      // Perhaps a process of an older epoch that is on its way out.
      net::wait_ready(-1, 0,
                      {std::min(wait_.deadline, monotonic_now() + kRetryPause), wait_.cancel});
    }
  }

  // An Error is worth another try; a refusal for good is thrown.
  Status introduce(int peer, net::Socket& socket) {
    if (auto status = net::authenticate(socket, net::Role::kClient, key_, context_, wait_);
        !status.ok()) {
      return status;
    }
    const Hello hello{mesh_->epoch(), mesh_->rank(), mesh_->world()};
    if (auto status = socket.write_all(std::as_bytes(std::span(&hello, 1)), wait_); !status.ok()) {
      return status;
    }
    const auto verdict = net::read_message(socket, kMaxVerdictBytes, wait_);
    if (!verdict.ok()) return verdict.error();
    if (*verdict == std::string(1, kWelcome)) return {};
    const std::string sentence = verdict->empty() ? "" : verdict->substr(1);
    if (!verdict->empty() && verdict->front() == kNotYet) {
      return Error{ExitCode::kPeerLost, sentence};
    }
    throw mesh_->lost(peer, "refused this rank: " + sentence);
  }

  // Server's end.
  void accept_some() {
    throw_if_ended(who_is_missing());
    std::vector<pollfd> fds;
    const bool room = pending_.size() < kMaxPending;
    fds.push_back({room ? listener_.fd() : -1, POLLIN, 0});
    fds.push_back({wait_.cancel ? wait_.cancel->fd() : -1, POLLIN, 0});
    for (const auto& socket : mesh_->sockets_) fds.push_back({socket.fd(), POLLRDHUP, 0});
    MonotonicTime next = wait_.deadline;
    for (const Pending& one : pending_) {
      fds.push_back({one.socket.fd(), POLLIN, 0});
      next = std::min(next, one.deadline);
    }
    poll(fds.data(), fds.size(), net::poll_timeout(next));
    for (int peer = 0; peer < mesh_->world(); ++peer) {
      if (mesh_->socket(peer).connected() && mesh_->socket(peer).peer_closed()) {
        throw mesh_->lost(peer, "closed its connection while the mesh was built");
      }
    }
    for (auto one = pending_.begin(); one != pending_.end();) {
      one = serve(*one) ? std::next(one) : pending_.erase(one);
    }
    if (room && fds[0].revents != 0) greet();
  }

  void greet() {
    auto socket = listener_.try_accept().or_throw();
    if (!socket.connected()) return;
    net::Handshake handshake(net::Role::kServer, key_, context_);
    if (!send(socket, handshake.take_output())) return;
    pending_.push_back({std::move(socket),
                        std::move(handshake),
                        monotonic_now() + mesh_->config_.handshake_limit,
                        {}});
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
      const std::size_t have = one.input.size();
      one.input.resize(one.wanted());
      const auto got =
          one.socket.try_read(std::as_writable_bytes(std::span(one.input).subspan(have)));
      one.input.resize(have + (got.ok() ? *got : 0));
      if (!got.ok()) return turn_away(one, "went away before it said who it is");
      if (one.input.size() < one.wanted()) {
        if (monotonic_now() < one.deadline) {
          if (*got == 0) return true;
          continue;
        }
        return turn_away(one, "did not say who it is in time");
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
    std::string text;
    for (int peer = mesh_->rank() + 1; peer < mesh_->world(); ++peer) {
      if (mesh_->socket(peer).connected()) continue;
      text += (text.empty() ? "" : ", ") + mesh_->name(peer);
    }
    text += " did not connect";
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
  std::unique_ptr<Mesh> mesh_;
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
