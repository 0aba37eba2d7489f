#include "common/net/socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/support/local_ports.h"
#include "tests/unit/common/net/net_fixtures.h"

namespace tilewright::net {
namespace {

using std::chrono::milliseconds;

bool mentions(const Error& error, const std::string& text) {
  return error.message.find(text) != std::string::npos;
}

TEST(Socket, TransfersMoreThanTheKernelBuffersInBothDirections) {
  auto [client, server] = connected_pair();
  std::vector<int> sent(4 << 20);  // 16 MiB
  std::iota(sent.begin(), sent.end(), 0);
  std::vector<int> echoed(sent.size());
  std::thread echo([&server = server, size = sent.size() * sizeof(int)] {
    std::vector<std::byte> buffer(size);
    EXPECT_TRUE(server.read_exact(buffer, soon()).ok());
    EXPECT_TRUE(server.write_all(buffer, soon()).ok());
  });
  EXPECT_TRUE(client.write_all(std::as_bytes(std::span(sent)), soon()).ok());
  EXPECT_TRUE(client.read_exact(std::as_writable_bytes(std::span(echoed)), soon()).ok());
  echo.join();
  EXPECT_EQ(sent, echoed);
}

TEST(Socket, GathersAndScattersBuffersInOrder) {
  auto [client, server] = connected_pair();
  const std::string a = "head", b, c(300'000, 'x'), d = "tail";
  iovec out[] = {make_iovec(a.data(), a.size()), make_iovec(b.data(), b.size()),
                 make_iovec(c.data(), c.size()), make_iovec(d.data(), d.size())};
  std::thread writer([&client = client, &out] { EXPECT_TRUE(client.write_all(out, soon()).ok()); });
  std::string first(300'002, '\0'), second(6, '\0');
  iovec in[] = {make_iovec(first.data(), first.size()), make_iovec(second.data(), second.size())};
  EXPECT_TRUE(server.read_exact(in, soon()).ok());
  writer.join();
  EXPECT_EQ(first + second, a + b + c + d);
}

TEST(Socket, AcceptsMoreBuffersThanIovMax) {
  auto [client, server] = connected_pair();
  const std::string text = "ab";
  std::vector<iovec> out(3000, make_iovec(text.data(), text.size()));
  EXPECT_TRUE(client.write_all(out, soon()).ok());
  std::string want;
  for (int i = 0; i < 3000; ++i) want += text;
  EXPECT_EQ(read_text(server, 6000), want);
}

TEST(Socket, ReadTimesOutAndReportsProgress) {
  auto [client, server] = connected_pair();
  ASSERT_TRUE(client.write_all(bytes_of("abc"), soon()).ok());
  std::byte buffer[8];
  ASSERT_EQ(wait_ready(server.fd(), POLLIN, soon()), Ready::kYes);
  const auto status = server.read_exact(buffer, within(milliseconds(30)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ExitCode::kPeerLost);
  EXPECT_TRUE(mentions(status.error(), "timed out: received 3 of 8 bytes"))
      << status.error().message;
  EXPECT_TRUE(mentions(status.error(), server.peer())) << status.error().message;
}

TEST(Socket, WriteTimesOutWhenThePeerDoesNotRead) {
  auto [client, server] = connected_pair();
  const std::vector<std::byte> much(64 << 20);
  const auto status = client.write_all(much, within(milliseconds(50)));
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(mentions(status.error(), "timed out: sent "));
}

TEST(Socket, SlowPeerDoesNotExtendTheDeadline) {
  auto [client, server] = connected_pair();
  const std::vector<std::byte> some(100'000);
  ASSERT_TRUE(client.write_all(some, soon()).ok());
  ASSERT_EQ(wait_ready(server.fd(), POLLIN, soon()), Ready::kYes);
  // One-byte buffers, so that every read leaves bytes unread.
  std::vector<std::byte> buffer(some.size());
  std::vector<iovec> buffers;
  buffers.reserve(buffer.size());
  for (std::byte& one : buffer) buffers.push_back(make_iovec(&one, 1));
  const auto status = server.read_exact(buffers, monotonic_now());
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(mentions(status.error(), "timed out: received "));
}

TEST(Socket, ReadIsCancelledFromAnotherThread) {
  auto [client, server] = connected_pair();
  WakeUp cancel;
  std::thread canceller([&cancel] { cancel.signal(); });
  std::byte buffer[8];
  const auto status =
      server.read_exact(buffer, within(std::chrono::seconds(20), &cancel));  // fails by then
  canceller.join();
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(mentions(status.error(), "cancelled")) << status.error().message;
}

TEST(Socket, DetectsAClosedPeerOnReadWriteAndQuery) {
  auto [client, server] = connected_pair();
  EXPECT_FALSE(server.peer_closed());
  ASSERT_TRUE(client.write_all(bytes_of("bye"), soon()).ok());
  client.close();
  EXPECT_EQ(wait_ready(server.fd(), POLLIN, soon()), Ready::kYes);
  EXPECT_EQ(read_text(server, 3), "bye");  // bytes sent before the end can still be read
  std::byte buffer[1];
  const auto status = server.read_exact(buffer, soon());
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(mentions(status.error(), "closed the connection"));
  EXPECT_TRUE(server.peer_closed());
  // The first write causes the reset, a later one reports it; none raises SIGPIPE.
  const std::vector<std::byte> much(64 << 20);
  EXPECT_FALSE(server.write_all(much, soon()).ok());
}

TEST(Socket, DetectsAKilledPeerProcess) {
  Listener listener = loopback_listener();
  const pid_t child = fork();
  if (child == 0) {
    auto socket = connect_to(listener.local_address(), soon());
    if (!socket.ok() || !socket->write_all(bytes_of("x"), soon()).ok()) _exit(1);
    while (true) pause();
  }
  Socket server = accept_from(listener);
  EXPECT_EQ(read_text(server, 1), "x");
  kill(child, SIGKILL);
  std::byte buffer[1];
  const auto status = server.read_exact(buffer, soon());
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(mentions(status.error(), "clos") || mentions(status.error(), "broke"));
  waitpid(child, nullptr, 0);
}

TEST(Socket, TryCallsDoNotBlock) {
  auto [client, server] = connected_pair();
  std::byte buffer[8];
  EXPECT_EQ(server.try_read(buffer).value(), 0u);
  const std::vector<std::byte> much(64 << 20);
  std::size_t sent = client.try_write(much).value();
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, much.size());
  EXPECT_EQ(wait_ready(server.fd(), POLLIN, soon()), Ready::kYes);
  EXPECT_EQ(server.try_read(buffer).value(), 8u);
  client.close();
}

TEST(Connect, RetriesUntilThePeerListens) {
  const testing::ReservedPort port;
  const Address address{"127.0.0.1", port.number()};
  EXPECT_FALSE(connect_to(address, soon()).ok());  // refused at once without a retry
  auto later = std::async(std::launch::async,
                          [address] { return connect_to(address, soon(), Retry::kUntilDeadline); });
  // Whether the connector fails before this point does not affect the result.
  std::this_thread::yield();
  Listener listener = Listener::bind(address).or_throw();
  EXPECT_TRUE(accept_from(listener).connected());
  EXPECT_TRUE(later.get().ok());
}

// The local addresses of this host's connections to `port` that have no answer yet, as
// /proc/net/tcp shows them.
std::set<std::string> unanswered_connects(std::uint16_t port) {
  std::set<std::string> found;
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string slot, local, remote, state;
    words >> slot >> local >> remote >> state;
    constexpr const char* kSynSent = "02";
    if (state == kSynSent && remote.ends_with(fmt::format(":{:04X}", port))) found.insert(local);
  }
  return found;
}

TEST(Connect, TriesAgainIfThePeerDoesNotAnswer) {
  Listener listener = Listener::bind({"127.0.0.1", 0}, 0).or_throw();
  const Address address = listener.local_address();
  // The kernel queues one connection and drops each further SYN.
  const Socket queued = connect_to(address, soon()).or_throw();
  const Wait wait = soon();
  auto later = std::async(std::launch::async, [&] {
    return connect_to(address, wait, Retry::kUntilDeadline, milliseconds(100));
  });
  std::set<std::string> attempts;
  while (attempts.size() < 2 && monotonic_now() < wait.deadline) {
    attempts.merge(unanswered_connects(address.port));
    std::this_thread::yield();
  }
  EXPECT_GE(attempts.size(), 2U);
  EXPECT_TRUE(accept_from(listener).connected());
  EXPECT_TRUE(later.get().ok());
}

TEST(Connect, FailsOnTimeoutOrCancelAndNamesTheAddress) {
  const testing::ReservedPort port;
  const Address address{"127.0.0.1", port.number()};
  auto socket = connect_to(address, within(milliseconds(30)), Retry::kUntilDeadline);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, ExitCode::kPeerLost);
  EXPECT_TRUE(mentions(socket.error(), to_string(address)));
  WakeUp cancel;
  cancel.signal();
  EXPECT_FALSE(
      connect_to(address, within(std::chrono::hours(1), &cancel), Retry::kUntilDeadline).ok());
}

TEST(Connect, ResolvesNamesAndReportsUnknownHosts) {
  Listener listener = Listener::bind({"", 0}).or_throw();
  EXPECT_TRUE(connect_to({"localhost", listener.local_address().port}, soon()).ok());
  const auto none = connect_to({"no-such-host.invalid", 1}, soon());
  ASSERT_FALSE(none.ok());
  EXPECT_TRUE(mentions(none.error(), "no-such-host.invalid")) << none.error().message;
}

TEST(Listener, PicksAFreePortAndRejectsOneInUse) {
  const Listener first = loopback_listener();
  EXPECT_EQ(first.local_address().host, "127.0.0.1");
  EXPECT_NE(first.local_address().port, 0);
  const auto second = Listener::bind(first.local_address());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ExitCode::kUsage);
  EXPECT_TRUE(mentions(second.error(), to_string(first.local_address())));
}

TEST(Listener, TryAcceptDoesNotBlock) {
  Listener listener = loopback_listener();
  EXPECT_FALSE(listener.try_accept().value().connected());
}

TEST(Listener, AcceptsAFloodInParts) {
  Listener listener = Listener::bind({"127.0.0.1", 0}).or_throw();
  std::vector<Socket> clients, accepted;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(connect_to(listener.local_address(), soon()).or_throw());
  }
  const auto accept = [&] {
    accepted.clear();
    EXPECT_TRUE(listener.accept_some([&](Socket one) { accepted.push_back(std::move(one)); }).ok());
    return accepted.size();
  };
  std::size_t all = 0;
  while (all < clients.size()) {
    ASSERT_EQ(wait_ready(listener.fd(), POLLIN, soon()), Ready::kYes);
    const std::size_t some = accept();
    EXPECT_LE(some, 64U);
    all += some;
  }
  EXPECT_EQ(accept(), 0U);
}

TEST(Listener, ListensOnIpv6WhenAvailable) {
  auto listener = Listener::bind({"::1", 0});
  if (!listener.ok()) GTEST_SKIP() << "this machine has no IPv6: " << listener.error().message;
  EXPECT_EQ(to_string(listener->local_address()).rfind("[::1]:", 0), 0u);
  EXPECT_TRUE(connect_to(listener->local_address(), soon()).ok());
}

TEST(Listener, ListensOnBothFamiliesWithoutAHost) {
  Listener listener = Listener::bind({"", 0}).or_throw();
  const std::uint16_t port = listener.local_address().port;
  // A system may support IPv6 without having an IPv6 address.
  EXPECT_EQ(listener.local_address().host, Listener::bind({"::", 0}).ok() ? "::" : "0.0.0.0");
  for (const std::string host : {"127.0.0.1", "::1"}) {
    if (!Listener::bind({host, 0}).ok()) continue;
    const Socket caller = connect_to({host, port}, soon()).or_throw();
    const Socket called = accept_from(listener);
    // The IPv4 form, not the IPv4-mapped IPv6 form.
    EXPECT_EQ(called.peer(), to_string(caller.local_address().or_throw()));
    EXPECT_EQ(called.local_address().or_throw().host, host);
  }
}

// As in a membership epoch of many processes, where all connect to rank 0 at once.
TEST(Listener, KeepsManyConnectionsUntilTheyAreAccepted) {
  const Listener listener = Listener::bind({"127.0.0.1", 0}).or_throw();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(listener.local_address().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<FileDescriptor> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (connect(clients.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      ASSERT_EQ(errno, EINPROGRESS);
    }
  }
  for (const FileDescriptor& one : clients) {
    ASSERT_EQ(wait_ready(one.get(), POLLOUT, within(std::chrono::seconds(20))), Ready::kYes);
  }
}

}  // namespace
}  // namespace tilewright::net
