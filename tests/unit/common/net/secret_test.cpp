#include "common/net/secret.h"

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <thread>

#include "tests/support/paths.h"
#include "tests/unit/common/net/net_fixtures.h"

namespace tilewright::net {
namespace {

const std::string kSecret = "a secret of enough bytes";

SecretKey key_of(const std::string& text) { return SecretKey::from_bytes(text).or_throw(); }

// All of what came, in the pieces that the end wants.
Status feed(Handshake& end, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t size = std::min(end.wanted(), bytes.size());
    if (auto status = end.feed(bytes.substr(0, size)); !status.ok()) return status;
    bytes.remove_prefix(size);
  }
  return {};
}

// Runs both ends over memory; the Status of the end that failed first.
Status converse(Handshake& client, Handshake& server) {
  while (!client.complete() || !server.complete()) {
    if (auto status = feed(client, server.take_output()); !status.ok()) return status;
    const std::string answer = client.take_output();
    if (answer.empty()) break;
    if (auto status = server.feed(answer); !status.ok()) return status;
  }
  return {};
}

TEST(Hmac, AgreesWithTheStandardsExample) {  // RFC 4231, test case 3
  const SecretKey key = key_of(std::string(20, '\xaa'));
  std::string hex;
  for (const unsigned char byte : hmac_sha256(key, std::string(50, '\xdd'))) {
    hex += fmt::format("{:02x}", byte);
  }
  EXPECT_EQ(hex, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
}

TEST(SecretKey, IsReadFromAFileAsItIs) {
  const testing::TemporaryDirectory folder;
  const auto path = folder.path() / "secret";
  std::ofstream(path) << kSecret << '\n';
  const auto key = SecretKey::from_file(path);
  ASSERT_TRUE(key.ok());
  EXPECT_TRUE(std::ranges::equal(key->bytes(), key_of(kSecret + "\n").bytes()));
}

TEST(SecretKey, OutsideItsBoundsIsRefusedByPathWithoutItsContent) {
  const testing::TemporaryDirectory folder;
  const auto path = folder.path() / "secret";
  for (const std::size_t size : {std::size_t{0}, std::size_t{15}, std::size_t{4097}}) {
    std::ofstream(path) << std::string(size, 'Q');
    const auto key = SecretKey::from_file(path);
    ASSERT_FALSE(key.ok());
    EXPECT_EQ(key.error().code, ExitCode::kUsage);
    EXPECT_NE(key.error().message.find(path.string()), std::string::npos);
    EXPECT_EQ(key.error().message.find("QQ"), std::string::npos);
  }
  EXPECT_FALSE(SecretKey::from_file(folder.path() / "none").ok());
  EXPECT_FALSE(SecretKey::from_file(folder.path()).ok());
}

TEST(SecretKey, RandomOnesDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const SecretKey key = SecretKey::random();
    seen.emplace(key.bytes().begin(), key.bytes().end());
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST(Handshake, SucceedsOnlyWithTheSameSecretAndTheSameContext) {
  const auto outcome = [](const std::string& a, const std::string& b, const char* at,
                          const char* bt) {
    Handshake client(Role::kClient, key_of(a), at), server(Role::kServer, key_of(b), bt);
    return converse(client, server).ok() && client.complete() && server.complete();
  };
  EXPECT_TRUE(outcome(kSecret, kSecret, "mesh job-1", "mesh job-1"));
  EXPECT_FALSE(outcome(kSecret, kSecret + ".", "mesh job-1", "mesh job-1"));
  EXPECT_FALSE(outcome(kSecret, kSecret, "mesh job-1", "mesh job-2"));
  EXPECT_FALSE(outcome(kSecret, kSecret, "mesh job-1", "mesh job-1 "));
}

TEST(Handshake, TellsAStrangerNothingButARandomNumber) {
  Handshake server(Role::kServer, key_of(kSecret), "mesh");
  EXPECT_EQ(server.take_output().size(), 4u + 32u);
  EXPECT_FALSE(server.feed(std::string(64, 'x')).ok());
  EXPECT_EQ(server.take_output(), "");
  EXPECT_FALSE(server.complete());
}

TEST(Handshake, DoesNotAcceptItsOwnWordsReflected) {
  // A stranger that answers a client's proof with that same proof.
  Handshake client(Role::kClient, key_of(kSecret), "mesh");
  ASSERT_TRUE(feed(client, "TWA1" + std::string(32, 'n')).ok());
  const std::string proof = client.take_output().substr(32);
  EXPECT_FALSE(client.feed(proof).ok());
  // A stranger that has a client prove the nonce of a server, with the roles exchanged.
  Handshake first(Role::kServer, key_of(kSecret), "mesh");
  Handshake second(Role::kServer, key_of(kSecret), "mesh");
  const std::string nonce = second.take_output().substr(4);
  EXPECT_FALSE(first.feed(nonce + std::string(32, 'p')).ok());
}

TEST(Handshake, SaysThatTheOtherEndSpeaksTlsOnly) {
  Handshake client(Role::kClient, key_of(kSecret), "mesh");
  const auto status = client.feed(kTlsGreeting);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "speaks TLS only, and this end does not use it");
}

TEST(Handshake, DoesNotAcceptARecordedProof) {
  const SecretKey key = key_of(kSecret);
  Handshake client(Role::kClient, key, "mesh"), server(Role::kServer, key, "mesh");
  ASSERT_TRUE(feed(client, server.take_output()).ok());
  const std::string recorded = client.take_output();
  EXPECT_TRUE(server.feed(recorded).ok());
  Handshake later(Role::kServer, key, "mesh");
  later.take_output();
  EXPECT_FALSE(later.feed(recorded).ok());
}

TEST(Authenticate, LetsBothEndsTalkAfterwards) {
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

TEST(Authenticate, TellsBothEndsWhenTheSecretsDiffer) {
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

TEST(Authenticate, DropsASilentStrangerAtTheDeadline) {
  auto [client, server] = connected_pair();
  const Status status = authenticate(server, Role::kServer, key_of(kSecret), "mesh",
                                     within(std::chrono::milliseconds(30)));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("0 of 64 bytes came"), std::string::npos);
}

TEST(Authenticate, AClientRefusesAServerOfAnotherProtocol) {
  auto [client, server] = connected_pair();
  ASSERT_TRUE(
      server.write_all(bytes_of("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"), soon()).ok());
  const Status status = authenticate(client, Role::kClient, key_of(kSecret), "mesh", soon());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("does not speak this protocol"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::net
