#include "worker/collectives/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/unit/worker/collectives/cluster.h"

namespace tilewright::collectives {
namespace {

using std::chrono::milliseconds;

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Barrier, LetsNobodyThroughBeforeTheLast) {
  std::atomic<int> arrived{0};
  expect_no_errors(run_ranks(4, [&arrived](Mesh& mesh) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      barrier(mesh, soon());
      EXPECT_GE(arrived.load(), 4 * round);
      barrier(mesh, soon());  // nobody begins the next round before all have looked
    }
  }));
}

TEST(Broadcast, BringsTheRootsBytesToAll) {
  expect_no_errors(run_ranks(3, [](Mesh& mesh) {
    for (int root = 0; root < 3; ++root) {
      std::vector<int> values(1 << 20, mesh.rank() == root ? root + 10 : -1);  // 4 MiB
      broadcast(mesh, root, std::as_writable_bytes(std::span(values)), soon());
      EXPECT_EQ(std::ranges::count(values, root + 10), 1 << 20);
      const std::string text =
          mesh.rank() == root ? std::string(static_cast<std::size_t>(root), 'r') : "not the root's";
      EXPECT_EQ(broadcast_text(mesh, root, text, 2, soon()),
                std::string(static_cast<std::size_t>(root), 'r'));
    }
  }));
}

TEST(AllGather, BringsTextsOfAnySizeToAllAtOnce) {
  expect_no_errors(run_ranks(4, [](Mesh& mesh) {
    const auto text_of = [](int rank) {
      // 0 bytes, then more than the sockets of loopback hold.
      return std::string(static_cast<std::size_t>(rank) * 5'000'000, static_cast<char>('a' + rank));
    };
    const auto texts = all_gather(mesh, text_of(mesh.rank()), 15'000'000, soon());
    ASSERT_EQ(texts.size(), 4u);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(texts[static_cast<std::size_t>(rank)] == text_of(rank)) << rank;
    }
  }));
}

TEST(AllGather, RefusesMoreThanTheBoundAndNamesTheRank) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    all_gather(mesh, std::string(mesh.rank() == 1 ? 101 : 100, 'x'), 100, soon());
  });
  EXPECT_TRUE(mentions(errors[0], "rank 1 (")) << errors[0];
  EXPECT_TRUE(mentions(errors[0], "sent 101 bytes in a gather, at most 100 are allowed"));
}

TEST(Broadcast, OfAnotherSizeThanExpectedIsRefused) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    std::vector<std::byte> bytes(mesh.rank() == 0 ? 10 : 11);
    broadcast(mesh, 0, bytes, soon());
  });
  EXPECT_TRUE(mentions(errors[1], "sent 10 bytes in a broadcast, expected 11")) << errors[1];
}

TEST(Exchange, EndsAtItsDeadlineAndNamesWhoIsMissing) {
  net::WakeUp seen;
  const auto errors = run_ranks(2, [&seen](Mesh& mesh) {
    if (mesh.rank() == 1) {  // alive, but does not take part
      net::wait_ready(seen.fd(), POLLIN, soon());
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
                       "barrier of epoch 1 is not finished by the deadline: waiting for "
                       "rank 1"))
      << errors[0];
}

TEST(Exchange, EndsAtOnceForAllWhenAborted) {
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
  // Whoever ends first closes its connections; the others may see that before their own abort.
  for (const std::string& error : errors) {
    EXPECT_TRUE(mentions(error, "aborted: the membership changed") || mentions(error, "is lost") ||
                mentions(error, "closed its connection"))
        << error;
  }
  EXPECT_TRUE(std::ranges::any_of(
      errors, [](const std::string& error) { return mentions(error, "aborted: the membership"); }));
}

TEST(Exchange, NoticesRanksThatDoDifferentThings) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    if (mesh.rank() == 0) {
      barrier(mesh, soon());
    } else {
      all_gather(mesh, "", 0, soon());
    }
  });
  EXPECT_TRUE(mentions(errors[0] + errors[1], "expected")) << errors[0] << " / " << errors[1];
}

TEST(Frames, OfAnOldEpochAreRefused) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    if (mesh.rank() == 1) {
      FrameHeader header;
      header.epoch = 0;
      header.operation = 1;
      mesh.socket(0).write_all(std::as_bytes(std::span(&header, 1)), soon()).or_throw();
      std::byte end[100];
      EXPECT_FALSE(mesh.socket(0).read_exact(end, soon()).ok());  // dropped
      return;
    }
    barrier(mesh, soon());
  });
  EXPECT_TRUE(mentions(errors[0], "sent a frame of epoch 0, which is refused in epoch 1"))
      << errors[0];
}

TEST(Frames, ThatAreNoneAreRefused) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    if (mesh.rank() == 1) {
      const std::string garbage(40, 'g');
      mesh.socket(0).write_all(std::as_bytes(std::span(garbage)), soon()).or_throw();
      std::byte end[100];
      EXPECT_FALSE(mesh.socket(0).read_exact(end, soon()).ok());
      return;
    }
    barrier(mesh, soon());
  });
  EXPECT_TRUE(mentions(errors[0], "sent bytes that are no frame")) << errors[0];
}

}  // namespace
}  // namespace tilewright::collectives
