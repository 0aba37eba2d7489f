// Who gets into a mesh and who does not.
#include "worker/collectives/mesh.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/unit/worker/collectives/cluster.h"
#include "worker/collectives/exchange.h"

namespace tilewright::collectives {
namespace {

using std::chrono::milliseconds;

const std::string kSecret = "a secret of enough bytes";

// A rank in a thread: builds its mesh and passes a barrier; what went wrong, "" for nothing. Rings
// `failed` when something did.
std::future<std::string> join(Listeners& listeners, const MeshConfig& config,
                              const std::string& key = kSecret, net::WakeUp* failed = nullptr) {
  return std::async(std::launch::async, [&listeners, config, key, failed]() -> std::string {
    try {
      auto mesh = build_mesh(listeners.listeners[static_cast<std::size_t>(config.rank)], config,
                             test_key(key), soon());
      barrier(*mesh, soon());
      return "";
    } catch (const Failure& failure) {
      if (failed) failed->signal();
      return failure.what();
    }
  });
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Builds rank 0 of `listeners` until a short deadline; what it said when that failed.
std::string build_in_vain(Listeners& listeners, milliseconds limit,
                          const net::WakeUp* cancel = nullptr) {
  try {
    build_mesh(listeners.listeners[0], listeners.config(0, 7), test_key(), monotonic_now() + limit,
               cancel);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kPeerLost);
    return failure.what();
  }
  return "";
}

TEST(Mesh, ConnectsEveryRankWithEveryOther) {
  for (int world = 1; world <= 5; ++world) {
    expect_no_errors(run_ranks(world, [](Mesh& mesh) {
      const auto ranks = all_gather(mesh, std::to_string(mesh.rank()), 10, soon());
      for (int rank = 0; rank < mesh.world(); ++rank) {
        EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], std::to_string(rank));
      }
    }));
  }
}

TEST(Mesh, IsCompleteThoughStrangersKeepTheirConnectionsOpenAndSendGarbage) {
  Listeners listeners(2);
  std::vector<net::Socket> strangers;
  for (int i = 0; i < 100; ++i) {  // more than are served at once
    strangers.push_back(net::connect_to(listeners.addresses[0], soon()).or_throw());
    const std::string garbage(static_cast<std::size_t>(i) * 10, 'g');
    EXPECT_TRUE(strangers.back().write_all(std::as_bytes(std::span(garbage)), soon()).ok());
  }
  MeshConfig config = listeners.config(0);
  config.handshake_limit = milliseconds(20);
  auto zero = join(listeners, config);
  auto one = join(listeners, listeners.config(1));
  EXPECT_EQ(zero.get(), "");
  EXPECT_EQ(one.get(), "");
  for (net::Socket& stranger : strangers) {  // all dropped, none told more than a random number
    std::byte greeting[36], more[1];
    // Garbage that was not read makes the close a reset, which may take the greeting with it.
    const bool greeted = stranger.read_exact(greeting, soon()).ok();
    if (greeted) {
      EXPECT_FALSE(stranger.read_exact(more, soon()).ok());
    }
  }
}

TEST(Mesh, SaysWhoIsMissingAndWhoWasTurnedAway) {
  Listeners listeners(3);
  auto stranger = net::connect_to(listeners.addresses[0], soon()).or_throw();
  const std::string garbage(64, 'g');
  EXPECT_TRUE(stranger.write_all(std::as_bytes(std::span(garbage)), soon()).ok());
  const std::string why = build_in_vain(listeners, milliseconds(100));
  EXPECT_TRUE(mentions(why, "rank 0 of epoch 7: the mesh is not complete by the deadline")) << why;
  EXPECT_TRUE(mentions(why, "rank 1 (" + net::to_string(listeners.addresses[1]) + "), rank 2"))
      << why;
  EXPECT_TRUE(mentions(why, "turned away: 1, the last: " + stranger.local_address()->host)) << why;
  EXPECT_TRUE(mentions(why, "did not prove that it knows this job's secret")) << why;
}

TEST(Mesh, DoesNotAdmitAnotherSecretOrAnotherJob) {
  for (const bool other_job : {false, true}) {
    Listeners listeners(2);
    net::WakeUp cancel;
    MeshConfig config = listeners.config(1, 7);
    if (other_job) config.job_uid = "job-2";
    auto one = std::async(std::launch::async, [&] {
      try {
        build_mesh(listeners.listeners[1], config,
                   test_key(other_job ? kSecret : "another secret, as long"), soon(), &cancel);
        return std::string();
      } catch (const Failure& failure) {
        return std::string(failure.what());
      }
    });
    const std::string why = build_in_vain(listeners, milliseconds(100));
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
                                ") refused this rank: epoch 6 is over, this is epoch 7"))
      << why;
  // The epoch forms without it.
  auto one = join(listeners, listeners.config(1, 7));
  auto two = join(listeners, listeners.config(2, 7));
  EXPECT_EQ(zero.get() + one.get() + two.get(), "");
}

TEST(Mesh, WaitsForARankThatIsStillInTheEpochBefore) {
  Listeners listeners(2);
  net::WakeUp cancel;
  auto stale = std::async(std::launch::async, [&] {
    try {
      build_mesh(listeners.listeners[0], listeners.config(0, 6), test_key(), soon(), &cancel);
    } catch (const Failure&) {
    }
  });
  auto one = join(listeners, listeners.config(1, 7));
  cancel.signal();
  stale.get();
  auto zero = join(listeners, listeners.config(0, 7));
  EXPECT_EQ(zero.get() + one.get(), "");
}

TEST(Mesh, RefusesARankOfAnotherWorldAndASecondOfTheSameRank) {
  Listeners listeners(3);
  auto zero = join(listeners, listeners.config(0));
  MeshConfig wide = listeners.config(2);
  wide.peers.push_back(wide.peers[1]);
  EXPECT_TRUE(mentions(join(listeners, wide).get(), "rank 2 of 4 does not connect to rank 0 of 3"));
  net::WakeUp refused;
  auto first = join(listeners, listeners.config(2), kSecret, &refused);
  auto second = join(listeners, listeners.config(2), kSecret, &refused);
  // Rank 0 waits for rank 1 and so sees both; rank 1 comes when one of them has gone.
  EXPECT_EQ(net::wait_ready(refused.fd(), POLLIN, soon()), net::Ready::kYes);
  auto one = join(listeners, listeners.config(1));
  const std::string a = first.get(), b = second.get();
  EXPECT_TRUE(a.empty() != b.empty()) << a << " / " << b;
  EXPECT_TRUE(mentions(a + b, "rank 2 is connected already")) << a + b;
  EXPECT_EQ(zero.get() + one.get(), "");
}

TEST(Mesh, IsGivenUpAtOnceWhenCancelled) {
  Listeners listeners(2);
  net::WakeUp cancel;
  auto ringer = std::async(std::launch::async, [&cancel] { cancel.signal(); });
  EXPECT_TRUE(mentions(build_in_vain(listeners, std::chrono::hours(1), &cancel), "cancelled"));
}

TEST(Mesh, NoticesAMemberThatDiesWhileOthersAreMissing) {
  Listeners listeners(3);
  std::future<std::string> zero;
  {
    RankProcess one([&listeners](int fd) -> int {
      // Rank 1 reaches rank 0 and is then waiting for rank 2.
      auto socket = net::connect_to(listeners.addresses[0], soon()).or_throw();
      net::authenticate(socket, net::Role::kClient, test_key(), "tilewright mesh of job job-1",
                        soon())
          .or_throw();
      const struct {
        std::uint64_t epoch = 1;
        std::int32_t rank = 1, world = 3;
      } hello;
      socket.write_all(std::as_bytes(std::span(&hello, 1)), soon()).or_throw();
      std::byte verdict[5];
      socket.read_exact(verdict, soon()).or_throw();
      RankProcess::report(fd, "in");
      while (true) pause();
    });
    zero = join(listeners, listeners.config(0));  // no thread before the fork
    EXPECT_EQ(one.line(), "in");
  }
  EXPECT_TRUE(mentions(zero.get(), "rank 1 (" + net::to_string(listeners.addresses[1]) +
                                       ") closed its connection while the mesh was built"));
}

}  // namespace
}  // namespace tilewright::collectives
