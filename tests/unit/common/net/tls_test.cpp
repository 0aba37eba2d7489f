#include "common/net/tls.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <future>
#include <thread>

#include "tests/unit/common/net/net_fixtures.h"
#include "tests/unit/common/net/relay.h"

namespace tilewright::net {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

SecretKey secret(const std::string& text = "a secret of enough bytes") {
  return SecretKey::from_bytes(text).or_throw();
}
TlsKey key(const std::string& text = "a secret of enough bytes",
           std::string_view context = "test of job-1") {
  return {secret(text), context};
}

FindTlsKey only(const TlsKey& known) {
  return [&known](std::string_view identity) {
    return identity == known.identity() ? &known : nullptr;
  };
}

// Finishes the handshakes of both ends in parallel.
std::pair<Status, Status> finish(Socket& client, Socket& server, Duration limit) {
  auto other = std::async(std::launch::async, [&] { return server.finish_tls(within(limit)); });
  const Status mine = client.finish_tls(within(limit));
  if (!mine.ok()) client.close();
  return {mine, other.get()};
}
std::pair<Status, Status> finish(Socket& client, Socket& server) {
  return finish(client, server, std::chrono::seconds(20));
}

struct TlsPair : Pair {
  explicit TlsPair(Pair plain, const TlsLimits& limits = {}) : Pair(std::move(plain)) {
    client.connect_tls(known, limits);
    server.accept_tls(only(known), {}, limits);
    const auto [mine, other] = finish(client, server);
    EXPECT_TRUE(mine.ok()) << mine.error().message;
    EXPECT_TRUE(other.ok()) << other.error().message;
  }
  TlsKey known = key();
};

// A pair whose bytes go through a relay.
struct RelayedPair {
  RelayedPair() : listener(loopback_listener()), relay(listener.local_address()) {
    pair.client = connect_to(relay.address(), soon()).or_throw();
    pair.server = accept_from(listener);
  }
  Listener listener;
  Relay relay;
  Pair pair;
};

std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

TEST(Hkdf, MatchesTheRfcTestVector) {  // RFC 5869, test case 1
  std::string salt, info;
  for (char c = 0; c <= 0x0c; ++c) salt += c;
  for (int c = 0xf0; c <= 0xf9; ++c) info += static_cast<char>(c);
  std::array<unsigned char, 42> output{};
  hkdf_sha256(secret(std::string(22, '\x0b')), salt, info, output);
  std::string hex;
  for (const unsigned char byte : output) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex,
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
}

TEST(TlsKey, DependsOnSecretAndContextAndRevealsNeither) {
  const TlsKey one = key();
  EXPECT_EQ(one.identity(), key().identity());
  for (const TlsKey& other :
       {key("a secret of enough bytez"), key("a secret of enough bytes", "x")}) {
    EXPECT_NE(one.identity(), other.identity());
    EXPECT_FALSE(std::ranges::equal(one.bytes(), other.bytes()));
  }
  EXPECT_THAT(one.identity(), Not(HasSubstr("job-1")));
}

TEST(Tls, TransfersInBothDirectionsAtOnce) {
  TlsPair pair(connected_pair());
  const std::string big = pattern(3'000'000);
  const auto ends_of = [&](Socket& socket) {
    // Writes and reads without blocking; polls for poll_events() when neither makes progress.
    std::string got;
    std::size_t sent = 0;
    std::array<std::byte, 100'000> buffer;
    const Wait wait = soon();
    while (got.size() < big.size() || sent < big.size()) {
      std::size_t moved = 0;
      if (sent < big.size()) {
        moved = socket.try_write(bytes_of(std::string_view(big).substr(sent))).or_throw();
        sent += moved;
      }
      const std::size_t received = socket.try_read(buffer).or_throw();
      got.append(reinterpret_cast<const char*>(buffer.data()), received);
      if (moved + received > 0) continue;
      const short events = socket.poll_events(static_cast<short>(
          (got.size() < big.size() ? POLLIN : 0) | (sent < big.size() ? POLLOUT : 0)));
      if (wait_ready(socket.fd(), events, wait) != Ready::kYes) break;
    }
    return got;
  };
  auto other = std::async(std::launch::async, [&] { return ends_of(pair.server); });
  EXPECT_TRUE(ends_of(pair.client) == big);
  EXPECT_TRUE(other.get() == big);
}

TEST(Tls, GathersScattersAndReadsPartialRecords) {
  TlsPair pair(connected_pair());
  const std::string a = "header", b = pattern(20'000);
  std::array<iovec, 3> buffers{make_iovec(a.data(), a.size()), make_iovec(nullptr, 0),
                               make_iovec(b.data(), b.size())};
  ASSERT_TRUE(pair.client.write_all(buffers, soon()).ok());
  EXPECT_EQ(read_text(pair.server, 3), "hea");
  EXPECT_TRUE(pair.server.buffered()) << "the rest of the record is already decrypted";
  std::string rest(3 + b.size(), '\0');
  std::array<iovec, 2> parts{make_iovec(rest.data(), 3), make_iovec(rest.data() + 3, b.size())};
  ASSERT_TRUE(pair.server.read_exact(parts, soon()).ok());
  EXPECT_TRUE(rest == "der" + b);
}

// 9 KiB before the handshake, 22 KiB with an SSL_CTX each. Sanitizers report 0.
TEST(Tls, ConnectionsShareTheContextOfTheirSide) {
  constexpr std::size_t kConnections = 50;
  const TlsKey known = key();
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i <= kConnections; ++i) pairs.push_back(connected_pair());
  pairs.back().server.accept_tls(only(known));  // allocates what all share
  const std::size_t before = mallinfo2().uordblks;
  for (std::size_t i = 0; i < kConnections; ++i) pairs[i].server.accept_tls(only(known));
  EXPECT_LT((mallinfo2().uordblks - before) / kConnections, std::size_t{16} << 10);
}

TEST(Tls, HandshakesOnFirstReadOrWrite) {
  auto [client, server] = connected_pair();
  const TlsKey known = key();
  client.connect_tls(known);
  server.accept_tls(only(known));
  auto other = std::async(std::launch::async, [&server = server] { return read_text(server, 5); });
  EXPECT_TRUE(client.write_all(bytes_of("hello"), soon()).ok());
  EXPECT_EQ(other.get(), "hello");
  EXPECT_TRUE(client.encrypted());
}

TEST(Tls, AcceptsBytesReadBeforeTlsDetection) {
  auto [client, server] = connected_pair();
  const TlsKey known = key();
  client.connect_tls(known);
  ASSERT_FALSE(client.advance_tls().or_throw());
  const std::string begin = read_text(server, 7);
  EXPECT_TRUE(is_tls_hello(begin));
  server.accept_tls(only(known), begin);
  const auto [mine, theirs] = finish(client, server);
  EXPECT_TRUE(mine.ok() && theirs.ok());
}

TEST(Tls, LeaksNoPlaintextOrJobIdentity) {
  RelayedPair relayed;
  TlsPair pair(std::move(relayed.pair));
  const std::string words = "a sentence that must not be readable on the wire";
  std::string got(words.size(), '\0');
  ASSERT_TRUE(pair.client.write_all(bytes_of(words), soon()).ok());
  EXPECT_EQ(read_text(pair.server, words.size()), words);
  const std::string seen = relayed.relay.recorded();
  EXPECT_GT(seen.size(), words.size());
  EXPECT_TRUE(is_tls_hello(seen));
  for (const std::string& plain : {words, words.substr(0, 10), std::string("job-1"),
                                   std::string("a secret of enough bytes")}) {
    EXPECT_THAT(seen, Not(HasSubstr(plain)));
  }
}

TEST(Tls, UsesFreshKeysPerConnection) {
  // The same text under the same secret encrypts differently.
  std::string seen[2];
  for (std::string& one : seen) {
    RelayedPair relayed;
    TlsPair pair(std::move(relayed.pair));
    ASSERT_TRUE(pair.client.write_all(bytes_of(pattern(100)), soon()).ok());
    read_text(pair.server, 100);
    const std::string all = relayed.relay.recorded();
    one = all.substr(all.size() - 100);
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST(Tls, RejectsAnotherSecretOrContext) {
  for (const TlsKey& wrong :
       {key("another secret of enough bytes"), key("a secret of enough bytes", "other purpose")}) {
    auto [client, server] = connected_pair();
    const TlsKey known = key();
    client.connect_tls(wrong);
    server.accept_tls(only(known));
    const auto [mine, theirs] = finish(client, server);
    ASSERT_FALSE(mine.ok());
    ASSERT_FALSE(theirs.ok());
    EXPECT_EQ(mine.error().code, ExitCode::kPeerLost);
    EXPECT_THAT(mine.error().message, HasSubstr("did not prove that it knows this job's secret"));
    EXPECT_THAT(theirs.error().message, HasSubstr("did not prove that it knows this job's secret"));
  }
}

// An identity seen on the wire is useless without its key.
TEST(Tls, RejectsAPeerThatKnowsOnlyTheIdentity) {
  auto [client, server] = connected_pair();
  const TlsKey known = key(), wrong = key("another secret of enough bytes");
  client.connect_tls(wrong);
  server.accept_tls([&](std::string_view) { return &known; });
  const auto [mine, theirs] = finish(client, server);
  EXPECT_THAT(theirs.error().message, HasSubstr("did not prove that it knows this job's secret"));
  EXPECT_THAT(mine.error().message, HasSubstr("did not prove that it knows this job's secret"));
}

// A server without the key that presents a certificate, as on the web.
TEST(Tls, RejectsCertificateAuthentication) {
  auto [client, impostor] = connected_pair();
  const TlsKey known = key();
  client.connect_tls(known);
  std::thread other([fd = impostor.fd()] {
    EVP_PKEY* own = EVP_RSA_gen(2048);
    X509* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, own);
    X509_sign(certificate, own, EVP_sha256());
    SSL_CTX* context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context, certificate);
    SSL_CTX_use_PrivateKey(context, own);
    SSL* ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    pollfd one{fd, POLLIN, 0};
    while (SSL_accept(ssl) < 0 && poll(&one, 1, 20'000) > 0 && (one.revents & POLLHUP) == 0 &&
           SSL_get_error(ssl, -1) == SSL_ERROR_WANT_READ) {
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    X509_free(certificate);
    EVP_PKEY_free(own);
  });
  const Status status = client.finish_tls(soon());
  client.close();
  other.join();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("did not prove that it knows this job's secret"));
}

TEST(Tls, ClosesTheConnectionOnTampering) {
  RelayedPair relayed;
  TlsPair pair(std::move(relayed.pair));
  relayed.relay.alter_next_byte();
  ASSERT_TRUE(pair.client.write_all(bytes_of("words"), soon()).ok());
  std::array<std::byte, 5> got;
  const Status status = pair.server.read_exact(got, soon());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ExitCode::kPeerLost);
  EXPECT_THAT(status.error().message, HasSubstr("altered in transit"));
  const Status other = pair.client.read_exact(got, soon());
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("ended the connection"));
}

TEST(Tls, ReportsAPeerWithoutTls) {
  // A server without TLS sends its greeting at once.
  {
    auto [client, server] = connected_pair();
    const TlsKey known = key();
    client.connect_tls(known);
    ASSERT_TRUE(server.write_all(bytes_of("TWA1 and so on"), soon()).ok());
    const Status status = client.finish_tls(soon());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("does not use TLS 1.3, which this end requires"));
  }
  // A server that closes the connection on a ClientHello.
  {
    auto [client, server] = connected_pair();
    const TlsKey known = key();
    client.connect_tls(known);
    server.close();
    const Status status = client.finish_tls(soon());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message,
                ::testing::AnyOf(HasSubstr("does it use TLS"), HasSubstr("broke the connection")));
  }
  // A client without TLS.
  {
    auto [client, server] = connected_pair();
    const TlsKey known = key();
    server.accept_tls(only(known));
    ASSERT_TRUE(client.write_all(bytes_of("hello, who is there?"), soon()).ok());
    const Status status = server.finish_tls(soon());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("does not use TLS 1.3"));
  }
  // A silent server.
  {
    auto [client, server] = connected_pair();
    const TlsKey known = key();
    client.connect_tls(known);
    const Status status = client.finish_tls(within(milliseconds(20)));
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message,
                HasSubstr("did not finish the TLS handshake by the deadline"));
  }
}

TEST(Tls, CloseNotifyAndResetBothReportClosed) {
  for (const bool notify : {true, false}) {
    TlsPair pair(connected_pair());
    ASSERT_TRUE(pair.client.write_all(bytes_of("last words"), soon()).ok());
    if (notify) pair.client.shutdown_write();
    if (!notify) pair.client.close();
    EXPECT_EQ(read_text(pair.server, 10), "last words");
    EXPECT_TRUE(pair.server.peer_closed());
    std::array<std::byte, 1> more;
    const Status status = pair.server.read_exact(more, soon());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("closed the connection"));
    if (notify) {  // the other direction is still open
      ASSERT_TRUE(pair.server.write_all(bytes_of("answer"), soon()).ok());
      EXPECT_EQ(read_text(pair.client, 6), "answer");
    }
  }
}

TEST(Tls, NeverRaisesSigpipe) {
  TlsPair pair(connected_pair());
  pair.server.close();
  const std::string words = pattern(100'000);
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    status = pair.client.write_all(bytes_of(words), soon());
  }
  EXPECT_FALSE(status.ok());
}

TEST(Tls, WriteTimesOutWhenThePeerDoesNotRead) {
  TlsPair pair(connected_pair());
  const std::string big = pattern(64 << 20);
  const Status status = pair.client.write_all(bytes_of(big), within(milliseconds(50)));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("timed out: sent "));
}

TEST(Tls, KeepsWorkingAcrossKeyUpdates) {
  TlsPair pair(connected_pair(), {.records_per_key = 2});
  const std::string words = pattern(2'000'000);
  std::string got(words.size(), '\0');
  for (int round = 0; round < 3; ++round) {
    auto other = std::async(std::launch::async,
                            [&] { return pair.client.write_all(bytes_of(words), soon()); });
    EXPECT_TRUE(read_text(pair.server, words.size()) == words);
    EXPECT_TRUE(other.get().ok());
    ASSERT_TRUE(pair.server.write_all(bytes_of("answer"), soon()).ok());
    EXPECT_EQ(read_text(pair.client, 6), "answer");
  }
}

}  // namespace
}  // namespace tilewright::net
