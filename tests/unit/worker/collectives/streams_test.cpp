#include "worker/collectives/streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "tests/unit/worker/collectives/cluster.h"
#include "worker/collectives/exchange.h"

namespace tilewright::collectives {
namespace {

TEST(Streams, GrowWithTheThreadsOfAProcess) {
  EXPECT_EQ(default_streams(1), 1);
  EXPECT_EQ(default_streams(7), 1);
  EXPECT_EQ(default_streams(8), 2);
  EXPECT_EQ(default_streams(56), 4);
}

TEST(Streams, AreAsManyAsTheRankWithTheFewestWants) {
  std::atomic<int> right{0};
  expect_no_errors(run_ranks(3, [&](Mesh& mesh) {
    const int wanted = mesh.rank() == 1 ? 2 : 5;
    right += agree_on_streams(mesh, wanted, test_deadline()) == 2;
    right += agree_on_streams(mesh, 100, test_deadline()) == kMaxStreams;
    right += agree_on_streams(mesh, 0, test_deadline()) == 1;
  }));
  EXPECT_EQ(right, 9);
}

TEST(Streams, OfASingleRankAreOne) {
  EXPECT_EQ(agree_on_streams(*Mesh::single_rank(), 4, test_deadline()), 1);
}

TEST(Streams, RefuseANumberThatIsNone) {
  for (const char* text : {"", "0", "-1", "17", "4x"}) {
    const auto errors = run_ranks(2, [&](Mesh& mesh) {
      if (mesh.rank() == 1) {
        all_gather(mesh, text, 2, test_deadline());
      } else {
        agree_on_streams(mesh, 4, test_deadline());
      }
    });
    EXPECT_TRUE(mentions(errors[0], "rank 1 (") &&
                mentions(errors[0], "sent an invalid number of streams, expected 1 to 16"))
        << text << ": " << errors[0];
  }
}

// Each carries an operation of its own at the same time.
TEST(Streams, HaveConnectionsOfTheirOwn) {
  tested_streams = 3;
  expect_no_errors(run_ranks(3, [](Mesh& mesh) {
    ASSERT_EQ(mesh.streams(), 3);
    std::set<int> sockets;
    for (int stream = 0; stream < mesh.streams(); ++stream) {
      for (int peer = 0; peer < mesh.world(); ++peer) {
        if (peer != mesh.rank()) sockets.insert(socket_of(mesh.stream(stream), peer).fd());
      }
    }
    EXPECT_EQ(sockets.size(), 6u);
    std::vector<std::thread> threads;
    threads.reserve(3);
    for (int stream = 0; stream < mesh.streams(); ++stream) {
      threads.emplace_back([&mesh, stream] {
        for (int round = 0; round <= 10 * stream; ++round) {
          const auto texts =
              all_gather(mesh.stream(stream), fmt::format("{} of {}", stream, mesh.rank()), 100,
                         test_deadline());
          for (int rank = 0; rank < mesh.world(); ++rank) {
            EXPECT_EQ(texts[static_cast<std::size_t>(rank)], fmt::format("{} of {}", stream, rank));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    barrier(mesh, test_deadline());
  }));
  tested_streams = 1;
}

TEST(Streams, AreAddedUntilThereAreEnough) {
  Listeners listeners(2);
  std::vector<std::thread> ranks;
  ranks.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&listeners, rank] {
      net::Listener& listener = listeners.listeners[static_cast<std::size_t>(rank)];
      const auto mesh = build_mesh(listener, listeners.config(rank), test_key(), test_deadline());
      for (const int streams : {2, 1, 4, 4}) {
        barrier(*mesh, test_deadline());
        add_streams(*mesh, streams, listener, test_key(), test_deadline());
      }
      EXPECT_EQ(mesh->streams(), 4);
      barrier(mesh->stream(3), test_deadline());
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Streams, EndWithTheMesh) {
  tested_streams = 2;
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    mesh.abort("the membership changed");
    mesh.stream(1).throw_if_aborted();
  });
  tested_streams = 1;
  for (const std::string& error : errors) {
    EXPECT_TRUE(mentions(error, "was aborted: the membership changed")) << error;
  }
  const auto mesh = Mesh::single_rank();
  mesh->abort("too late");
  mesh->add_stream(Mesh::single_rank());
  EXPECT_THROW(mesh->stream(1).throw_if_aborted(), Failure);
}

TEST(Streams, AreNotCompleteWithoutAPeer) {
  Listeners listeners(2);
  std::thread one([&] {
    build_mesh(listeners.listeners[1], listeners.config(1), test_key(), test_deadline());
  });
  const auto mesh =
      build_mesh(listeners.listeners[0], listeners.config(0), test_key(), test_deadline());
  one.join();
  try {
    add_streams(*mesh, 2, listeners.listeners[0], test_key(), test_deadline());
    ADD_FAILURE() << "the peer has not connected again";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kPeerLost);
    EXPECT_TRUE(mentions(failure.what(), "rank 1 (")) << failure.what();
    EXPECT_TRUE(mentions(failure.what(), "closed its connection")) << failure.what();
  }
}

}  // namespace
}  // namespace tilewright::collectives
