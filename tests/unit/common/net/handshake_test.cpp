#include "common/net/handshake.h"

#include <thread>

#include "tests/unit/common/net/net_fixtures.h"

namespace tilewright::net {
namespace {

// Feeds all bytes in the sizes that the end expects.
Status feed(Handshake& end, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t size = std::min(end.wanted(), bytes.size());
    if (auto status = end.feed(bytes.substr(0, size)); !status.ok()) return status;
    bytes.remove_prefix(size);
  }
  return {};
}

// Runs both ends in memory. Returns the Status of the end that failed first.
Status run_handshake(Handshake& client, Handshake& server) {
  while (!client.complete() || !server.complete()) {
    if (auto status = feed(client, server.take_output()); !status.ok()) return status;
    const std::string answer = client.take_output();
    if (answer.empty()) break;
    if (auto status = server.feed(answer); !status.ok()) return status;
  }
  return {};
}

TEST(Handshake, SucceedsOnlyWithTheSameSecretAndTheSameContext) {
  const auto outcome = [](const std::string& a, const std::string& b, const char* at,
                          const char* bt) {
    Handshake client(Role::kClient, key_of(a), at), server(Role::kServer, key_of(b), bt);
    return run_handshake(client, server).ok() && client.complete() && server.complete();
  };
  EXPECT_TRUE(outcome(kSecret, kSecret, "mesh job-1", "mesh job-1"));
  EXPECT_FALSE(outcome(kSecret, kSecret + ".", "mesh job-1", "mesh job-1"));
  EXPECT_FALSE(outcome(kSecret, kSecret, "mesh job-1", "mesh job-2"));
  EXPECT_FALSE(outcome(kSecret, kSecret, "mesh job-1", "mesh job-1 "));
}

TEST(Handshake, RevealsOnlyANonceToUnauthenticatedPeers) {
  Handshake server(Role::kServer, key_of(kSecret), "mesh");
  EXPECT_EQ(server.take_output().size(), 4u + 32u);
  EXPECT_FALSE(server.feed(std::string(64, 'x')).ok());
  EXPECT_EQ(server.take_output(), "");
  EXPECT_FALSE(server.complete());
}

TEST(Handshake, RejectsReflectedProofs) {
  // The peer answers a client's proof with the same proof.
  Handshake client(Role::kClient, key_of(kSecret), "mesh");
  ASSERT_TRUE(feed(client, "TWA1" + std::string(32, 'n')).ok());
  const std::string proof = client.take_output().substr(32);
  EXPECT_FALSE(client.feed(proof).ok());
  // The peer makes a second server prove the nonce of the first, with the roles exchanged.
  Handshake first(Role::kServer, key_of(kSecret), "mesh");
  Handshake second(Role::kServer, key_of(kSecret), "mesh");
  const std::string nonce = second.take_output().substr(4);
  EXPECT_FALSE(first.feed(nonce + std::string(32, 'p')).ok());
}

TEST(Handshake, ReportsATlsOnlyServer) {
  Handshake client(Role::kClient, key_of(kSecret), "mesh");
  const auto status = client.feed(kTlsGreeting);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "requires TLS, which this end does not use");
}

TEST(Handshake, RejectsReplayedProofs) {
  const SecretKey key = key_of(kSecret);
  Handshake client(Role::kClient, key, "mesh"), server(Role::kServer, key, "mesh");
  ASSERT_TRUE(feed(client, server.take_output()).ok());
  const std::string recorded = client.take_output();
  EXPECT_TRUE(server.feed(recorded).ok());
  Handshake later(Role::kServer, key, "mesh");
  later.take_output();
  EXPECT_FALSE(later.feed(recorded).ok());
}

TEST(Authenticate, AllowsMessagesInBothDirectionsAfterwards) {
  auto [client, server] = connected_pair();
  const SecretKey key = key_of(kSecret);
  std::thread other([&client = client, &key] {
    EXPECT_TRUE(authenticate(client, Role::kClient, key, "mesh", soon()).ok());
    EXPECT_TRUE(client.write_all(bytes_of("hello"), soon()).ok());
  });
  EXPECT_TRUE(authenticate(server, Role::kServer, key, "mesh", soon()).ok());
  EXPECT_EQ(read_text(server, 5), "hello");
  other.join();
}

TEST(Authenticate, FailsOnBothEndsWhenSecretsDiffer) {
  auto [client, server] = connected_pair();
  Status theirs;
  std::thread other([&client = client, &theirs] {
    theirs = authenticate(client, Role::kClient, key_of(kSecret + "!"), "mesh", soon());
  });
  const Status ours = authenticate(server, Role::kServer, key_of(kSecret), "mesh", soon());
  server.close();
  other.join();
  ASSERT_FALSE(ours.ok());
  EXPECT_EQ(ours.error().code, ExitCode::kPeerLost);
  EXPECT_NE(ours.error().message.find("did not prove"), std::string::npos);
  ASSERT_FALSE(theirs.ok());
  EXPECT_NE(theirs.error().message.find("secret"), std::string::npos);
}

TEST(Authenticate, TimesOutASilentPeer) {
  auto [client, server] = connected_pair();
  const Status status = authenticate(server, Role::kServer, key_of(kSecret), "mesh",
                                     within(std::chrono::milliseconds(30)));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("timed out: received 0 of 64 bytes"), std::string::npos);
}

TEST(Authenticate, ClientRejectsAnotherProtocol) {
  auto [client, server] = connected_pair();
  ASSERT_TRUE(
      server.write_all(bytes_of("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"), soon()).ok());
  const Status status = authenticate(client, Role::kClient, key_of(kSecret), "mesh", soon());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("does not speak this protocol"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::net
