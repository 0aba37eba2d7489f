// Tests which connections a mesh accepts and rejects.
#include "worker/collectives/mesh.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <future>

#include "common/net/connect.h"
#include "common/net/handshake.h"
#include "common/net/message.h"
#include "tests/unit/common/net/net_fixtures.h"
#include "tests/unit/worker/collectives/cluster.h"
#include "worker/collectives/exchange.h"

namespace tilewright::collectives {
namespace {

using std::chrono::milliseconds;

const std::string kSecret = "a secret of enough bytes";

// Runs a rank in a thread: builds its mesh and calls barrier(). Returns the error or "", and
// signals `failed` on an error.
std::future<std::string> join(Listeners& listeners, const MeshConfig& config,
                              const std::string& key = kSecret, net::WakeUp* failed = nullptr) {
  return std::async(std::launch::async, [&listeners, config, key, failed]() -> std::string {
    try {
      auto mesh = build_mesh(listeners.listeners[static_cast<std::size_t>(config.rank)], config,
                             test_key(key), test_deadline());
      barrier(*mesh, test_deadline());
      return "";
    } catch (const Failure& failure) {
      if (failed) failed->signal();
      return failure.what();
    }
  });
}

// Builds rank 0 of `listeners` and returns the error.
std::string expect_build_fails(Listeners& listeners, MonotonicTime deadline,
                               const net::WakeUp* cancel = nullptr) {
  try {
    build_mesh(listeners.listeners[0], listeners.config(0, 7), test_key(), deadline, cancel);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kPeerLost);
    return failure.what();
  }
  return "";
}

const char* const kContext = "tilewright mesh of job job-1";

// The greeting of a rank: the members of Listeners::config() in epoch 7, unless a test changes
// them.
struct RawHello {
  std::uint64_t version = kMeshProtocolVersion;
  std::uint64_t epoch = 7;
  std::uint64_t client_instance = 101;
  std::uint64_t server_instance = 100;
  std::int32_t rank = 1, world = 2;
};

// Authenticates itself to rank 0 as the job's workers do, then sends what the test says.
class RawRank {
 public:
  explicit RawRank(const Listeners& listeners)
      : socket_(net::connect_to(listeners.addresses[0], test_deadline()).or_throw()) {
    net::authenticate(socket_, net::Role::kClient, test_key(), kContext, test_deadline())
        .or_throw();
  }
  // Sends the greeting and returns the reply.
  std::string greet(const RawHello& hello) {
    socket_.write_all(std::as_bytes(std::span(&hello, 1)), test_deadline()).or_throw();
    return net::read_message(socket_, 1000, test_deadline()).or_throw();
  }

 private:
  net::Socket socket_;
};

TEST(Mesh, ConnectsEveryRankWithEveryOther) {
  for (int world = 1; world <= 5; ++world) {
    expect_no_errors(run_ranks(world, [](Mesh& mesh) {
      const auto ranks = all_gather(mesh, std::to_string(mesh.rank()), 10, test_deadline());
      for (int rank = 0; rank < mesh.world(); ++rank) {
        EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], std::to_string(rank));
      }
    }));
  }
}

TEST(Mesh, IsBuiltDespiteUnauthenticatedConnectionsThatSendGarbage) {
  Listeners listeners(2);
  std::vector<net::Socket> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(net::connect_to(listeners.addresses[0], test_deadline()).or_throw());
    const std::string garbage(static_cast<std::size_t>(i) * 10, 'g');
    EXPECT_TRUE(
        strangers.back().write_all(std::as_bytes(std::span(garbage)), test_deadline()).ok());
  }
  MeshConfig config = listeners.config(0);
  config.handshake_timeout = milliseconds(20);
  auto zero = join(listeners, config);
  auto one = join(listeners, listeners.config(1));
  EXPECT_EQ(zero.get(), "");
  EXPECT_EQ(one.get(), "");
  for (net::Socket& stranger : strangers) {  // all closed; none received more than the greeting
    std::byte greeting[36], more[1];
    // Unread garbage turns the close into a reset, which can discard the greeting.
    const bool greeting_received = stranger.read_exact(greeting, test_deadline()).ok();
    if (greeting_received) {
      EXPECT_FALSE(stranger.read_exact(more, test_deadline()).ok());
    }
  }
}

// As many as the queue of the listener takes connect before the rank accepts, the others after
// that: more than the rank holds.
TEST(Mesh, IsBuiltDespiteManyIdleConnections) {
  Listeners listeners(2);
  std::vector<net::Socket> strangers;
  const auto connect_strangers = [&](std::size_t count) {
    while (strangers.size() < count) {
      strangers.push_back(net::connect_to(listeners.addresses[0], test_deadline()).or_throw());
    }
  };
  MeshConfig config = listeners.config(0);
  config.handshake_timeout = std::chrono::hours(1);
  connect_strangers(100);
  auto zero = join(listeners, config);
  connect_strangers(260);
  auto one = join(listeners, listeners.config(1));
  EXPECT_EQ(zero.get(), "");
  EXPECT_EQ(one.get(), "");
}

TEST(Mesh, ReportsMissingRanksAtTheDeadline) {
  Listeners listeners(3);
  const std::string why = expect_build_fails(listeners, monotonic_now() + milliseconds(1));
  EXPECT_TRUE(
      mentions(why, "rank 0 in membership epoch 7: the mesh is not complete by the deadline"))
      << why;
  EXPECT_TRUE(mentions(why, "rank 1 (" + net::to_string(listeners.addresses[1]) + "), rank 2"))
      << why;
}

TEST(Mesh, ReportsRejectedConnections) {
  Listeners listeners(3);
  auto stranger = net::connect_to(listeners.addresses[0], test_deadline()).or_throw();
  const std::string garbage(64, 'g');
  EXPECT_TRUE(stranger.write_all(std::as_bytes(std::span(garbage)), test_deadline()).ok());
  net::WakeUp cancel;
  auto zero = std::async(std::launch::async,
                         [&] { return expect_build_fails(listeners, test_deadline(), &cancel); });
  std::array<std::byte, 64> greeting;
  EXPECT_FALSE(stranger.read_exact(greeting, test_deadline()).ok()) << "it is closed before";
  cancel.signal();
  const std::string why = zero.get();
  EXPECT_TRUE(mentions(why, "rejected connections: 1, the last: " + stranger.local_address()->host))
      << why;
  EXPECT_TRUE(mentions(why, "did not prove that it knows this job's secret")) << why;
}

TEST(Mesh, RejectsAnotherSecretOrAnotherJob) {
  for (const bool other_job : {false, true}) {
    Listeners listeners(2);
    net::WakeUp cancel;
    MeshConfig config = listeners.config(1, 7);
    if (other_job) config.job_uid = "job-2";
    auto one = std::async(std::launch::async, [&] {
      try {
        build_mesh(listeners.listeners[1], config,
                   test_key(other_job ? kSecret : "another secret, as long"), test_deadline(),
                   &cancel);
        return std::string();
      } catch (const Failure& failure) {
        return std::string(failure.what());
      }
    });
    // Rank 1 may start after the first deadlines.
    const MonotonicTime limit = test_deadline();
    std::string why;
    do {
      why = expect_build_fails(listeners, monotonic_now() + milliseconds(100));
    } while (!mentions(why, "did not prove") && !why.empty() && monotonic_now() < limit);
    EXPECT_TRUE(mentions(why, "did not prove")) << why;
    cancel.signal();
    EXPECT_TRUE(mentions(one.get(), "cancelled"));
  }
}

TEST(Mesh, TellsARankOfAnOldEpochThatItIsOver) {
  Listeners listeners(3);
  auto zero = join(listeners, listeners.config(0, 7));
  auto late = join(listeners, listeners.config(2, 6));
  const std::string why = late.get();
  EXPECT_TRUE(mentions(why, "rank 0 (" + net::to_string(listeners.addresses[0]) +
                                ") refused this rank: membership epoch 6 is over, the current "
                                "one is 7"))
      << why;
  // The mesh is built without it.
  auto one = join(listeners, listeners.config(1, 7));
  auto two = join(listeners, listeners.config(2, 7));
  EXPECT_EQ(zero.get() + one.get() + two.get(), "");
}

TEST(Mesh, WaitsForARankThatIsStillInThePreviousEpoch) {
  Listeners listeners(2);
  net::WakeUp cancel;
  auto stale = std::async(std::launch::async, [&] {
    try {
      build_mesh(listeners.listeners[0], listeners.config(0, 6), test_key(), test_deadline(),
                 &cancel);
    } catch (const Failure&) {
    }
  });
  auto one = join(listeners, listeners.config(1, 7));
  cancel.signal();
  stale.get();
  auto zero = join(listeners, listeners.config(0, 7));
  EXPECT_EQ(zero.get() + one.get(), "");
}

TEST(Mesh, RejectsARankOfAnotherWorldAndADuplicateRank) {
  Listeners listeners(3);
  auto zero = join(listeners, listeners.config(0));
  MeshConfig wide = listeners.config(2);
  wide.peers.push_back(wide.peers[1]);
  EXPECT_TRUE(mentions(join(listeners, wide).get(), "rank 2 of 4 must not connect to rank 0 of 3"));
  net::WakeUp refused;
  auto first = join(listeners, listeners.config(2), kSecret, &refused);
  auto second = join(listeners, listeners.config(2), kSecret, &refused);
  // Rank 0 waits for rank 1 and so sees both. Rank 1 starts after one of them is rejected.
  EXPECT_EQ(net::wait_ready(refused.fd(), POLLIN, test_deadline()), net::Ready::kYes);
  auto one = join(listeners, listeners.config(1));
  const std::string a = first.get(), b = second.get();
  EXPECT_TRUE(a.empty() != b.empty()) << a << " / " << b;
  EXPECT_TRUE(mentions(a + b, "rank 2 is already connected")) << a + b;
  EXPECT_EQ(zero.get() + one.get(), "");
}

TEST(Mesh, RejectsAnotherInstanceOfARank) {
  Listeners listeners(2);
  auto zero = join(listeners, listeners.config(0, 7));
  MeshConfig replaced = listeners.config(1, 7);
  replaced.peers[1].instance_id = 55;
  EXPECT_TRUE(mentions(join(listeners, replaced).get(),
                       "refused this rank: instance 0000000000000037 of rank 1 is not in epoch 7, "
                       "expected instance 0000000000000065"));
  auto one = join(listeners, listeners.config(1, 7));
  EXPECT_EQ(zero.get() + one.get(), "");
}

TEST(Mesh, TellsARankThatLooksForAnotherInstanceToTryAgain) {
  Listeners listeners(2);
  auto zero = join(listeners, listeners.config(0, 7));
  EXPECT_EQ(RawRank(listeners).greet({.server_instance = 200}),
            "Nthis is instance 0000000000000064 of rank 0, not 00000000000000c8");
  auto one = join(listeners, listeners.config(1, 7));
  EXPECT_EQ(zero.get() + one.get(), "");
}

TEST(Mesh, TakesOnlyTheExpectedInstanceForALowerRank) {
  Listeners listeners(2);
  auto one = join(listeners, listeners.config(1, 7));
  {  // a process that accepts every rank
    net::Socket socket = net::accept_from(listeners.listeners[0]);
    net::authenticate(socket, net::Role::kServer, test_key(), kContext, test_deadline()).or_throw();
    RawHello hello;
    socket.read_exact(std::as_writable_bytes(std::span(&hello, 1)), test_deadline()).or_throw();
    EXPECT_EQ(hello.client_instance, 101U);
    EXPECT_EQ(hello.server_instance, 100U);
    const std::uint64_t instance = 55;
    net::write_message(socket,
                       "W" + std::string(reinterpret_cast<const char*>(&instance), sizeof instance),
                       test_deadline())
        .or_throw();
    std::byte more[1];
    EXPECT_FALSE(socket.read_exact(more, test_deadline()).ok()) << "rank 1 closes the connection";
  }
  auto zero = join(listeners, listeners.config(0, 7));
  EXPECT_EQ(zero.get() + one.get(), "");
}

TEST(Mesh, TellsARankOfAnotherProtocolVersionBothVersions) {
  Listeners listeners(2);
  auto zero = join(listeners, listeners.config(0, 7));
  const std::string reason = fmt::format(
      "it uses version {} of the mesh protocol, rank 0 version {}; expected the same release of "
      "Tilewright for all workers",
      kMeshProtocolVersion + 1, kMeshProtocolVersion);
  EXPECT_EQ(RawRank(listeners).greet({.version = kMeshProtocolVersion + 1}), "V" + reason);
  auto one = join(listeners, listeners.config(1, 7));
  EXPECT_EQ(zero.get() + one.get(), "");
}

TEST(Mesh, EndsForGoodWhenAPeerHasAnotherProtocolVersion) {
  Listeners listeners(2);
  auto one = std::async(std::launch::async, [&] {
    try {
      build_mesh(listeners.listeners[1], listeners.config(1, 7), test_key(), test_deadline());
    } catch (const Failure& failure) {
      return failure.error();
    }
    return Error{ExitCode::kOk, ""};
  });
  net::Socket socket = net::accept_from(listeners.listeners[0]);
  net::authenticate(socket, net::Role::kServer, test_key(), kContext, test_deadline()).or_throw();
  net::write_message(socket, "Vit uses another version", test_deadline()).or_throw();
  const Error error = one.get();
  EXPECT_EQ(error.code, ExitCode::kUnsupported);
  EXPECT_EQ(error.message, "rank 0 (" + net::to_string(listeners.addresses[0]) +
                               ") refused this rank: it uses another version");
}

TEST(Mesh, FailsImmediatelyWhenCancelled) {
  Listeners listeners(2);
  net::WakeUp cancel;
  auto canceller = std::async(std::launch::async, [&cancel] { cancel.signal(); });
  EXPECT_TRUE(mentions(expect_build_fails(listeners, test_deadline(), &cancel), "cancelled"));
}

TEST(Mesh, DetectsTheDeathOfAConnectedRankDuringConstruction) {
  Listeners listeners(3);
  std::future<std::string> zero;
  {
    RankProcess one([&listeners](int fd) -> int {
      // Rank 1 connects to rank 0 and then waits for rank 2.
      RawRank rank(listeners);
      EXPECT_EQ(rank.greet({.epoch = 1, .rank = 1, .world = 3}).substr(0, 1), "W");
      RankProcess::report(fd, "in");
      while (true) pause();
    });
    zero = join(listeners, listeners.config(0));  // no thread before the fork
    EXPECT_EQ(one.line(), "in");
  }
  EXPECT_TRUE(
      mentions(zero.get(), "rank 1 (" + net::to_string(listeners.addresses[1]) +
                               ") closed its connection during the construction of the mesh"));
}

}  // namespace
}  // namespace tilewright::collectives
