// What strangers and faulty members may use of a coordinator: connections, memory and messages.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "tests/unit/common/rendezvous/coordinator_fixtures.h"

namespace tilewright::rendezvous {
namespace {

using ::testing::HasSubstr;

bool wait_until_closed(net::Socket& socket) {
  std::array<std::byte, 64> ignored;
  while (net::wait_ready(socket.fd(), POLLIN, net::within(seconds(20))) == net::Ready::kYes) {
    if (!socket.try_read(ignored).ok()) return true;
  }
  return false;
}

TEST(Coordinator, ASilentConnectionTimesOut) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  net::Socket socket =
      net::connect_to({"127.0.0.1", server->address().port}, net::within(kSoon)).or_throw();
  // The server may accept after an advance, so advance until it closes the connection.
  const MonotonicTime limit = in(seconds(20));
  while (!socket.peer_closed() && monotonic_now() < limit) {
    clock.advance(Server::Options().proof_timeout);
    net::wait_ready(socket.fd(), POLLIN, net::within(milliseconds(1)));
  }
  EXPECT_TRUE(socket.peer_closed());
  EXPECT_EQ(server->rejections().at("no_proof"), 1u);
}

TEST(Coordinator, AConnectionThatDoesNotJoinTimesOut) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  RawMember member(*server);
  ASSERT_TRUE(member.authenticated().ok());
  clock.advance(Server::Options().join_timeout);
  EXPECT_TRUE(member.is_closed_within(seconds(20)));
  EXPECT_EQ(server->rejections().at("no_proof"), 0u);
}

// The clock stands still, so no timeout frees a slot.
TEST(Coordinator, IdleConnectionsDoNotShutMembersOut) {
  ManualClock clock;
  auto server = serve(settings(1, 1, 1), clock);
  const Limits limits;
  std::vector<net::Socket> idle;
  for (std::size_t i = 0; i < limits.unauthenticated + 1; ++i)
    idle.push_back(net::connect_to({"127.0.0.1", server->address().port}, net::within(seconds(20)))
                       .or_throw());
  auto member = client(options(*server, 0));
  EXPECT_TRUE(member->join(-1, in(seconds(20))).ok());
  EXPECT_TRUE(wait_until_closed(idle.front())) << "the oldest";
  EXPECT_FALSE(idle.back().peer_closed()) << "the newest";
  EXPECT_LE(server->usage().connections, limits.unauthenticated_per_source + 1);
  EXPECT_GE(server->rejections().at("source"),
            limits.unauthenticated - limits.unauthenticated_per_source);
}

TEST(Coordinator, AJobHasAShareOfTheConnections) {
  ManualClock clock;
  auto server = serve(settings(1, 2, 1), clock);
  const std::size_t share = job_limits({}, 2).connections;
  std::vector<std::unique_ptr<RawMember>> members;
  for (std::size_t i = 0; i < share; ++i) {
    members.push_back(std::make_unique<RawMember>(*server));
    ASSERT_TRUE(members.back()->authenticated().ok());
  }
  RawMember refused(*server);
  EXPECT_THAT(refused.receive(), HasSubstr("the job has 20 connections, the maximum"));
  EXPECT_TRUE(refused.is_closed_within(seconds(20)));
  EXPECT_EQ(server->rejections().at("job_connections"), 1u);
  auto late = client(options(*server, 0));
  const MonotonicTime limit = in(seconds(20));
  std::string message;
  while (message.find("the job has 20 connections") == std::string::npos &&
         monotonic_now() < limit) {
    message = late->join(-1, in(milliseconds(10))).error().message;
  }
  EXPECT_THAT(message, HasSubstr("the job has 20 connections"));
  members.clear();
  EXPECT_TRUE(late->join(-1, in(seconds(20))).ok()) << "it connects again";
}

// Sends all but the last byte of the largest message.
void send_unfinished(RawMember& member) {
  member.send_bytes(net::message_prefix(kMaxMessageBytes) + std::string(kMaxMessageBytes - 1, ' '));
}

TEST(Coordinator, UnfinishedMessagesOfAJobUseABoundedAmountOfMemory) {
  ManualClock clock;
  auto server = serve(settings(1, 8, 1), clock);
  server->add_job({"job-2", key("the other job's own secret"), settings(1, 1, 1)}).or_throw();
  const JobLimits share = job_limits({}, 8);
  auto member = client(options(*server, 0));
  ASSERT_TRUE(member->join(-1, in(seconds(20))).ok());
  const RawMember silent(*server);
  ASSERT_TRUE(silent.authenticated().ok());
  std::vector<std::unique_ptr<RawMember>> faulty;
  for (std::size_t i = 0; i + 2 < share.connections; ++i) {
    faulty.push_back(std::make_unique<RawMember>(*server));
    ASSERT_TRUE(faulty.back()->authenticated().ok());
    send_unfinished(*faulty.back());
    EXPECT_LE(server->usage().buffered_bytes, share.buffered_bytes + (64 << 10));
  }
  // The last two may stay within the limit. A rejection is no change of the job, so the members'
  // sockets are what to wait for.
  const MonotonicTime deadline = in(seconds(20));
  while (faulty.size() > 2) {
    std::vector<pollfd> inputs;
    inputs.reserve(faulty.size());
    for (const auto& one : faulty) inputs.push_back({one->fd(), POLLIN, 0});
    ASSERT_GT(poll(inputs.data(), inputs.size(), net::poll_timeout(deadline)), 0)
        << faulty.size() << " of " << share.connections - 2 << " members wait for a message";
    std::erase_if(faulty, [](const auto& one) {
      if (!one->has_input()) return false;
      EXPECT_THAT(one->receive(), HasSubstr("the job's messages use"));
      return true;
    });
  }
  EXPECT_GE(server->rejections().at("job_buffers") + 4, share.connections);
  EXPECT_LE(server->usage().buffered_bytes, share.buffered_bytes + (64 << 10));
  EXPECT_FALSE(member->epoch_ended()) << "a member with short messages is not affected";
  EXPECT_FALSE(silent.has_input()) << "a connection without buffered bytes is not affected";
  RawMember other(*server, "the other job's own secret", "job-2");
  EXPECT_TRUE(other.authenticated().ok());
}

// The clock stands still, so no rejected connection closes by itself.
TEST(Coordinator, RejectedConnectionsOfAJobDoNotShutOtherJobsOut) {
  ManualClock clock;
  const std::size_t share = job_limits({}, 1).connections;
  const Limits limits{.connections = 2 * share};
  auto server = serve(settings(1, 1, 1), clock, 0, 0, limits);
  server->add_job({"job-2", key("the other job's own secret"), settings(1, 1, 1)}).or_throw();
  std::vector<std::unique_ptr<RawMember>> faulty;
  for (std::size_t i = 0; i < share + limits.connections; ++i) {
    faulty.push_back(std::make_unique<RawMember>(*server));
    ASSERT_TRUE(faulty.back()->authenticated().ok()) << i;
    if (i >= share) {
      EXPECT_THAT(faulty.back()->receive(), HasSubstr("the maximum"));
    }
  }
  EXPECT_LE(server->usage().connections, limits.connections);
  Client::Options other = options(*server, 0);
  other.job_uid = "job-2";
  auto member = client(other, "the other job's own secret");
  EXPECT_TRUE(member->join(-1, in(seconds(20))).ok());
  EXPECT_EQ(server->rejections().at("connections"), 0u);
}

// Sets the size of the server's send buffer of each later connection. A connection inherits it from
// the listener, and the kernel does not enlarge a buffer whose size was set.
void set_send_buffers(const Server& server, int bytes) {
  for (int fd = 3; fd < 1024; ++fd) {
    int listens = 0;
    sockaddr_in address{};
    socklen_t size = sizeof listens, address_size = sizeof address;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_size) != 0) continue;
    if (address.sin_family != AF_INET || ntohs(address.sin_port) != server.address().port) continue;
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    return;
  }
  ADD_FAILURE() << "found no listener at port " << server.address().port;
}

// A closed window makes the server's kernel wait before it sends again. Small segments keep it
// open.
net::Socket connect_with_small_receive_buffer(const Server& server) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int receive_buffer = 4096, segment = 536;
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer), 0);
  EXPECT_EQ(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.address().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return net::Socket(FileDescriptor(fd));
}

// Their assignments together are many times the job's share.
TEST(Coordinator, AJobWhoseMembersReadLateKeepsItsMembers) {
  constexpr int kWorld = 256;
  ManualClock clock;
  const Limits limits{.buffered_bytes = 4 << 20};
  auto server = serve(settings(kWorld, kWorld, kWorld), clock, 0, 0, limits);
  set_send_buffers(*server, 16 << 10);
  const std::string host(290, 'h');
  std::vector<std::unique_ptr<RawMember>> members;
  for (int i = 0; i < kWorld; ++i) {
    members.push_back(std::make_unique<RawMember>(connect_with_small_receive_buffer(*server)));
    ASSERT_TRUE(members.back()->authenticated().ok());
    const Join join{{{i, 0}, 5}, fmt::format("{}:{}", host, i + 1), {"avx2"}, -1, 0, {}};
    members.back()->send(encode(ClientMessage(join)));
  }
  ASSERT_TRUE(eventually(*server, [](const Snapshot& s) { return s.epoch == 1; }));
  EXPECT_EQ(server->rejections().at("job_buffers"), 0u);
  std::size_t most = 0;
  for (int i = 0; i < kWorld; ++i) {
    const auto message = decode_server_message(members[static_cast<std::size_t>(i)]->receive());
    most = std::max(most, server->usage().buffered_bytes);
    ASSERT_TRUE(message.ok()) << message.error().message;
    const auto& assignment = std::get<Assignment>(*message);
    EXPECT_EQ(assignment.rank, i);
    EXPECT_EQ(assignment.peers.size(), std::size_t{kWorld});
  }
  EXPECT_EQ(server->rejections().at("job_buffers"), 0u);
  EXPECT_LT(server->usage().buffered_bytes + kWorld * host.size(), most)
      << "nothing waited to be sent";
}

TEST(Coordinator, AFloodOfMessagesIsTurnedAway) {
  ManualClock clock;  // stands still: no tokens are earned
  auto server = serve(settings(1, 2, 1), clock);
  const double rate = job_limits({}, 2).messages_per_second;
  RawMember faulty(*server);
  faulty.send(encode(ClientMessage(Join{{{1, 0}, 5}, "x:1", {"avx2"}, -1, 0, {}})));
  const std::string beat = encode(ClientMessage(Heartbeat{{}, 0, {}}));
  std::string flood;
  for (int i = 0; i < rate * 10; ++i) flood += net::message_prefix(beat.size()) + beat;
  faulty.send_bytes(flood);
  std::string reply;
  do {
    reply = faulty.receive();
  } while (reply.find("unavailable") == std::string::npos);
  EXPECT_THAT(reply, HasSubstr("more than 300 messages per second"));
  EXPECT_TRUE(faulty.is_closed_within(seconds(20)));
  EXPECT_EQ(server->rejections().at("job_messages"), 1u);
}

}  // namespace
}  // namespace tilewright::rendezvous
