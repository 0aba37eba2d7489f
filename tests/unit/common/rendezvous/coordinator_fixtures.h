// A rendezvous server and its clients. The server's clock advances only when a test advances it, so
// that a slow machine cannot expire a deadline.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "common/net/connect.h"
#include "common/net/handshake.h"
#include "common/net/message.h"
#include "common/rendezvous/client.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/server.h"
#include "tests/support/manual_clock.h"
#include "tests/support/silent_logger.h"

namespace tilewright::rendezvous {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tilewright::testing::make_silent_logger;
using tilewright::testing::ManualClock;

inline constexpr const char* kUid = "job-1";
inline constexpr Duration kQuietPeriod = seconds(3);
inline constexpr Duration kSoon = seconds(60);  // only ends a test that would otherwise hang
inline constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

inline net::SecretKey key(const std::string& text = kSecret) {
  return net::SecretKey::from_bytes(text).value();
}
inline MonotonicTime in(Duration duration) { return monotonic_now() + duration; }

inline Settings settings(int min, int max, int expected) {
  Settings result;
  result.min_world = min;
  result.max_world = max;
  result.expected = expected;
  result.join_quiet_period = kQuietPeriod;
  return result;
}

inline std::unique_ptr<Server> serve(const Settings& job, ManualClock& clock,
                                     std::uint16_t port = 0, Epoch last_epoch = 0,
                                     const Limits& limits = {}) {
  Server::Options options{.listen = {"127.0.0.1", port}, .limits = limits, .clock = &clock};
  auto server = Server::start(options, make_silent_logger()).or_throw();
  server->add_job({kUid, key(), job, last_epoch}).or_throw();
  return server;
}

inline Client::Options options(const Server& server, int index) {
  Client::Options result;
  result.coordinator = {"127.0.0.1", server.address().port};
  result.job_uid = kUid;
  result.process = {index, 0};
  result.address = fmt::format("127.0.0.1:{}", 40000 + index);
  result.isas = {"avx2"};
  result.heartbeat_interval = milliseconds(20);
  return result;
}

inline std::unique_ptr<Client> client(const Client::Options& options,
                                      const std::string& secret = kSecret) {
  return std::make_unique<Client>(options, key(secret), make_silent_logger());
}

inline std::future<Result<Assignment>> join_later(Client& member, std::int64_t checkpoint = -1,
                                                  Duration within = kSoon) {
  return std::async(std::launch::async,
                    [&member, checkpoint, within] { return member.join(checkpoint, in(within)); });
}

inline bool wait_for_epoch_end(Client& member, Duration within) {
  return net::wait_ready(member.epoch_cancel_token().fd(), POLLIN, net::within(within)) ==
         net::Ready::kYes;
}

// Waits for changes until the condition holds.
template <typename Condition>
bool eventually(Server& server, Condition condition, Duration within = kSoon) {
  const MonotonicTime deadline = in(within);
  while (!condition(server.snapshot(kUid).value())) {
    if (net::wait_ready(server.changes().fd(), POLLIN, deadline) != net::Ready::kYes) return false;
    server.take_changed();
  }
  return true;
}

inline int count_waiting(const Snapshot& snapshot) {
  return static_cast<int>(std::ranges::count(snapshot.members, MemberState::kWaiting,
                                             [](const MemberView& one) { return one.state; }));
}

// Ends the quiet period as soon as `count` members wait for an epoch.
inline void form_with(Server& server, ManualClock& clock, int count) {
  ASSERT_TRUE(eventually(server, [&](const Snapshot& s) { return count_waiting(s) == count; }));
  clock.advance(kQuietPeriod);
}

inline bool has_disconnected(const Snapshot& snapshot) {
  return !std::ranges::all_of(snapshot.members, &MemberView::connected);
}

// A server and `count` clients in one epoch.
struct Running {
  Running(const Settings& job, int count, std::uint16_t port = 0)
      : server(serve(job, clock, port)) {
    std::vector<std::future<Result<Assignment>>> joins;
    for (int i = 0; i < count; ++i) {
      members.push_back(client(options(*server, i)));
      joins.push_back(join_later(*members.back()));
    }
    for (auto& join : joins) assignments.push_back(join.get().or_throw());
  }
  // Closes the member's connection until it is lost.
  void lose(std::size_t index) {
    members[index].reset();
    ASSERT_TRUE(eventually(*server, has_disconnected));
    clock.advance(Settings().reconnect_timeout);
  }
  ManualClock clock;
  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<Client>> members;
  std::vector<Assignment> assignments;
};

// A peer that authenticates and then sends the bytes of the test.
class RawMember {
 public:
  RawMember(const Server& server, const std::string& secret = kSecret,
            const std::string& uid = kUid, int version = kProtocolVersion)
      : RawMember(
            net::connect_to({"127.0.0.1", server.address().port}, net::within(kSoon)).or_throw(),
            secret, uid, version) {}
  explicit RawMember(net::Socket socket, const std::string& secret = kSecret,
                     const std::string& uid = kUid, int version = kProtocolVersion)
      : socket_(std::move(socket)) {
    net::write_message(socket_, encode_hello(uid, version), net::within(kSoon)).or_throw();
    authenticated_ = net::authenticate(socket_, net::Role::kClient, key(secret), proof_context(uid),
                                       net::within(kSoon));
  }
  void send(const std::string& message) {
    net::write_message(socket_, message, net::within(kSoon)).or_throw();
  }
  void send_bytes(const std::string& bytes) {
    socket_.write_all(std::as_bytes(std::span(bytes)), net::within(kSoon)).or_throw();
  }
  std::string receive() {
    return net::read_message(socket_, kMaxMessageBytes, net::within(kSoon)).or_throw();
  }
  bool has_input() const {
    return net::wait_ready(socket_.fd(), POLLIN, monotonic_now()) == net::Ready::kYes;
  }
  int fd() const { return socket_.fd(); }
  bool is_closed_within(Duration duration) {
    std::array<std::byte, 4096> ignored;
    while (net::wait_ready(socket_.fd(), POLLIN, net::within(duration)) == net::Ready::kYes) {
      if (!socket_.try_read(ignored).ok()) return true;
    }
    return false;
  }
  const Status& authenticated() const { return authenticated_; }

 private:
  net::Socket socket_;
  Status authenticated_;
};

}  // namespace tilewright::rendezvous
