#include "worker/collectives/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/unit/worker/collectives/cluster.h"

namespace tilewright::collectives {
namespace {

class BarrierTest : public WithLinks {};
class BroadcastTest : public WithLinks {};
class AllGatherTest : public WithLinks {};
class GatherTest : public WithLinks {};
class ExchangeTest : public WithLinks {};

using std::chrono::milliseconds;

TEST_P(BarrierTest, ReturnsOnlyAfterEveryRankHasCalledIt) {
  std::atomic<int> arrived{0};
  expect_no_errors(run_ranks(4, [&arrived](Mesh& mesh) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      barrier(mesh, test_deadline());
      EXPECT_GE(arrived.load(), 4 * round);
      barrier(mesh, test_deadline());  // no rank starts the next round before all have checked
    }
  }));
}

TEST_P(BroadcastTest, SendsTheRootsBytesToEveryRank) {
  expect_no_errors(run_ranks(3, [](Mesh& mesh) {
    for (int root = 0; root < 3; ++root) {
      std::vector<int> values(1 << 20, mesh.rank() == root ? root + 10 : -1);  // 4 MiB
      broadcast(mesh, root, std::as_writable_bytes(std::span(values)), test_deadline());
      EXPECT_EQ(std::ranges::count(values, root + 10), 1 << 20);
      const std::string text =
          mesh.rank() == root ? std::string(static_cast<std::size_t>(root), 'r') : "not the root's";
      EXPECT_EQ(broadcast_string(mesh, root, text, 2, test_deadline()),
                std::string(static_cast<std::size_t>(root), 'r'));
    }
  }));
}

TEST_P(AllGatherTest, GathersStringsOfAnySize) {
  expect_no_errors(run_ranks(4, [](Mesh& mesh) {
    const auto text_of = [](int rank) {
      // Rank 0 sends 0 bytes, the others more than the socket buffers hold.
      return std::string(static_cast<std::size_t>(rank) * 5'000'000, static_cast<char>('a' + rank));
    };
    const auto texts = all_gather(mesh, text_of(mesh.rank()), 15'000'000, test_deadline());
    ASSERT_EQ(texts.size(), 4u);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(texts[static_cast<std::size_t>(rank)] == text_of(rank)) << rank;
    }
  }));
}

TEST_P(AllGatherTest, SaysWhetherAllRanksAgree) {
  expect_no_errors(run_ranks(3, [](Mesh& mesh) {
    EXPECT_TRUE(all_of_ranks(mesh, true, test_deadline()));
    EXPECT_FALSE(all_of_ranks(mesh, false, test_deadline()));
    for (int other = 0; other < 3; ++other) {
      EXPECT_FALSE(all_of_ranks(mesh, mesh.rank() != other, test_deadline()));
    }
  }));
}

TEST_P(GatherTest, ReturnsTheTextsOfAllRanksOnTheRootOnly) {
  expect_no_errors(run_ranks(3, [](Mesh& mesh) {
    const auto text_of = [](int rank) {
      return std::string(static_cast<std::size_t>(rank) * 5'000'000, static_cast<char>('a' + rank));
    };
    const auto texts = gather(mesh, 1, text_of(mesh.rank()), 15'000'000, test_deadline());
    ASSERT_EQ(texts.size(), mesh.rank() == 1 ? 3u : 0u);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      EXPECT_TRUE(texts[rank] == text_of(static_cast<int>(rank))) << rank;
    }
    // The next operation starts on some ranks before the root has read everything.
    EXPECT_EQ(broadcast_string(mesh, 1, mesh.rank() == 1 ? "done" : "", 10, test_deadline()),
              "done");
  }));
}

TEST_P(AllGatherTest, RefusesTextsOverTheLimitAndNamesTheRank) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    all_gather(mesh, std::string(mesh.rank() == 1 ? 101 : 100, 'x'), 100, test_deadline());
  });
  EXPECT_TRUE(mentions(errors[0], "rank 1 (")) << errors[0];
  EXPECT_TRUE(mentions(errors[0], "sent 101 bytes in a gather, expected at most 100"));
}

TEST_P(BroadcastTest, RefusesAnUnexpectedSize) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    std::vector<std::byte> bytes(mesh.rank() == 0 ? 10 : 11);
    broadcast(mesh, 0, bytes, test_deadline());
  });
  EXPECT_TRUE(mentions(errors[1], "sent 10 bytes in a broadcast, expected 11")) << errors[1];
}

TEST_P(ExchangeTest, EndsAtItsDeadlineAndNamesTheMissingRank) {
  net::WakeUp seen;
  const auto errors = run_ranks(2, [&seen](Mesh& mesh) {
    if (mesh.rank() == 1) {  // alive, but does not call barrier()
      net::wait_ready(seen.fd(), POLLIN, test_deadline());
      return;
    }
    try {
      barrier(mesh, monotonic_now() + milliseconds(50));
    } catch (...) {
      seen.signal();
      throw;
    }
  });
  EXPECT_TRUE(mentions(errors[0],
                       "the barrier in membership epoch 1 is not finished by the deadline: waiting "
                       "for rank 1"))
      << errors[0];
}

TEST_P(ExchangeTest, EndsOnAllRanksWhenAborted) {
  const auto errors = run_ranks(3, [](Mesh& mesh) {
    std::thread aborter;
    if (mesh.rank() == 2) {
      mesh.abort("the membership changed");
    } else {
      aborter = std::thread([&mesh] { mesh.abort("the membership changed"); });
    }
    try {
      while (true) barrier(mesh, monotonic_now() + std::chrono::hours(1));
    } catch (...) {
      if (aborter.joinable()) aborter.join();
      throw;
    }
  });
  // The first rank to end closes its connections; others may detect that before they abort.
  for (const std::string& error : errors) {
    EXPECT_TRUE(mentions(error, "aborted: the membership changed") || mentions(error, "is lost") ||
                mentions(error, "closed its connection"))
        << error;
  }
  EXPECT_TRUE(std::ranges::any_of(
      errors, [](const std::string& error) { return mentions(error, "aborted: the membership"); }));
}

TEST_P(ExchangeTest, DetectsRanksInDifferentOperations) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    if (mesh.rank() == 0) {
      barrier(mesh, test_deadline());
    } else {
      all_gather(mesh, "", 0, test_deadline());
    }
  });
  EXPECT_TRUE(mentions(errors[0] + errors[1], "expected")) << errors[0] << " / " << errors[1];
}

TEST(Frames, AreRefusedIfTheyAreOfAnOldEpoch) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    if (mesh.rank() == 1) {
      FrameHeader header;
      header.epoch = 0;
      header.operation = 1;
      seal(header, {});
      socket_of(mesh, 0)
          .write_all(std::as_bytes(std::span(&header, 1)), test_deadline())
          .or_throw();
      std::byte end[100];
      EXPECT_FALSE(socket_of(mesh, 0).read_exact(end, test_deadline()).ok());  // dropped
      return;
    }
    barrier(mesh, test_deadline());
  });
  EXPECT_TRUE(mentions(errors[0], "sent a frame of membership epoch 0 in membership epoch 1"))
      << errors[0];
}

TEST(Frames, AreRefusedWithoutTheMagicNumber) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    if (mesh.rank() == 1) {
      const std::string garbage(sizeof(FrameHeader), 'g');
      socket_of(mesh, 0).write_all(std::as_bytes(std::span(garbage)), test_deadline()).or_throw();
      std::byte end[100];
      EXPECT_FALSE(socket_of(mesh, 0).read_exact(end, test_deadline()).ok());
      return;
    }
    barrier(mesh, test_deadline());
  });
  EXPECT_TRUE(mentions(errors[0], "sent bytes that are not a frame")) << errors[0];
}

TEST(Frames, AreRefusedIfAnyByteOfTheHeaderIsAltered) {
  for (std::size_t altered = 0; altered < sizeof(FrameHeader); ++altered) {
    const auto errors = run_ranks(2, [altered](Mesh& mesh) {
      if (mesh.rank() == 1) {
        FrameHeader header;
        header.epoch = header.operation = 1;
        seal(header, {});
        const auto bytes = std::as_writable_bytes(std::span(&header, 1));
        bytes[altered] ^= std::byte{4};
        socket_of(mesh, 0).write_all(bytes, test_deadline()).or_throw();
        std::byte end[100];
        while (socket_of(mesh, 0).read_exact(end, test_deadline()).ok()) {
        }
        return;
      }
      barrier(mesh, test_deadline());
    });
    EXPECT_TRUE(
        mentions(errors[0], altered < sizeof(FrameHeader::magic) ? "not a frame" : "checksum"))
        << "byte " << altered << ": " << errors[0];
  }
}

TEST(Frames, AreRefusedIfAByteOfTheirPayloadIsAltered) {
  const std::string state(1'000'000, 's');
  std::atomic<int> wrong{0};
  net::Relay* relay = nullptr;
  const auto errors = through_relay(false, relay, [&](Mesh& mesh) {
    for (int round = 0; round < 1000; ++round) {
      wrong += broadcast_string(mesh, 1, state, state.size(), test_deadline()) != state;
      barrier(mesh, test_deadline());
      if (round == 1 && mesh.rank() == 1) relay->alter_next_byte();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(mentions(errors[0], "checksum")) << errors[0];
}

INSTANTIATE_TEST_SUITE_P(Links, BarrierTest, kAllLinks, name_of_links);
INSTANTIATE_TEST_SUITE_P(Links, BroadcastTest, kAllLinks, name_of_links);
INSTANTIATE_TEST_SUITE_P(Links, AllGatherTest, kAllLinks, name_of_links);
INSTANTIATE_TEST_SUITE_P(Links, GatherTest, kAllLinks, name_of_links);
INSTANTIATE_TEST_SUITE_P(Links, ExchangeTest, kAllLinks, name_of_links);

}  // namespace
}  // namespace tilewright::collectives
