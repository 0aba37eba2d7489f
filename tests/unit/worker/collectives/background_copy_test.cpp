#include "worker/collectives/background_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>

#include "tests/unit/worker/collectives/cluster.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/frame_exchange.h"

namespace tilewright::collectives {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);

class BackgroundCopyTest : public WithLinks {};
INSTANTIATE_TEST_SUITE_P(Links, BackgroundCopyTest, kAllLinks, name_of_links);

struct Ranks {
  std::vector<int> senders, receivers;
  static bool has(const std::vector<int>& ranks, int rank) {
    return std::ranges::find(ranks, rank) != ranks.end();
  }
};

std::vector<std::byte> content(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 3 | 1);
  return bytes;
}

void copy_in_one_window(BackgroundCopy& copy) {
  copy.open_window();
  copy.wait_until_sent();
  copy.close_window();
}

// Sizes around that of a piece; also several receivers and a rank that is neither.
TEST_P(BackgroundCopyTest, CopiesFromAllSendersToAllReceivers) {
  for (const Ranks& one : {Ranks{{0}, {1, 2, 3}}, Ranks{{1, 3}, {0}}, Ranks{{0, 1, 3}, {2}},
                           Ranks{{2, 3}, {0, 1}}, Ranks{{0, 1, 2, 3}, {}}}) {
    expect_no_errors(run_ranks(4, [&one](Mesh& mesh) {
      const bool sends = Ranks::has(one.senders, mesh.rank());
      for (const std::size_t size :
           {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 20) + 1, std::size_t{5'000'003}}) {
        const std::vector<std::byte> sent = content(size);
        std::vector<std::byte> bytes = sends ? sent : std::vector<std::byte>(size);
        {
          BackgroundCopy copy(mesh, one.senders, one.receivers, {bytes}, kTimeout);
          EXPECT_EQ(copy.bytes(), static_cast<std::int64_t>(size));
          copy_in_one_window(copy);
          EXPECT_TRUE(copy.complete());
        }
        EXPECT_EQ(bytes == sent, size == 0 || sends || Ranks::has(one.receivers, mesh.rank()));
        barrier(mesh, test_deadline());  // the operations of all ranks still agree
      }
    }));
  }
}

// What one window has copied changes with the rest, on receivers like on senders, as weights change
// with their moments. Windows end at a share or, at any moment, with close_window().
TEST_P(BackgroundCopyTest, KeepsUpWithVectorsThatChangeBetweenWindows) {
  constexpr std::size_t kSize = 100'017;
  constexpr std::size_t kVectors = 3;
  using Vectors = std::vector<std::vector<std::byte>>;
  const auto change = [](Vectors& vectors, unsigned window) {
    for (std::size_t i = 0; i < kSize; ++i) {
      unsigned sum = window;
      for (std::vector<std::byte>& vector : vectors) {
        sum = sum * 5 + static_cast<unsigned>(vector[i]);
        vector[i] = static_cast<std::byte>(sum);
      }
    }
  };
  for (const Ranks& one : {Ranks{{0}, {1, 2}}, Ranks{{1, 2}, {0}}}) {
    std::atomic<int> receivers{0};
    expect_no_errors(run_ranks(3, [&](Mesh& mesh) {
      const bool sends = Ranks::has(one.senders, mesh.rank());
      std::mt19937 random(static_cast<unsigned>(mesh.rank()));
      Vectors expected(kVectors, content(kSize));
      Vectors vectors = sends ? expected : Vectors(kVectors, std::vector<std::byte>(kSize));
      const std::vector<std::span<std::byte>> memory(vectors.begin(), vectors.end());
      BackgroundCopy copy(mesh, one.senders, one.receivers, memory, kTimeout, 300);
      unsigned window = 0;
      for (bool complete = false; !complete; ++window) {
        copy.open_window(0.05 * window);
        if (random() % 2 == 0) copy.wait_until_sent();
        copy.close_window();
        change(vectors, window);
        change(expected, window);
        complete = all_of_ranks(mesh, copy.complete(), test_deadline());
      }
      EXPECT_TRUE(vectors == expected);
      EXPECT_GE(window, 20U);
      receivers += sends ? 0 : 1;
    }));
    EXPECT_EQ(receivers, std::ssize(one.receivers));
  }
}

TEST_P(BackgroundCopyTest, NamesALostSender) {
  const auto errors = run_ranks(3, [](Mesh& mesh) {
    barrier(mesh, test_deadline());  // all ranks have built their meshes
    if (mesh.rank() == 1) throw Failure(ExitCode::kInternal, "rank 1 is lost");
    std::vector<std::byte> bytes(20'000'000);
    BackgroundCopy copy(mesh, {0, 1}, {2}, {bytes}, kTimeout);
    copy_in_one_window(copy);
  });
  EXPECT_TRUE(mentions(errors[2], "rank 1")) << errors[2];
}

TEST_P(BackgroundCopyTest, NamesALostReceiver) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    barrier(mesh, test_deadline());
    if (mesh.rank() == 1) throw Failure(ExitCode::kInternal, "rank 1 is lost");
    std::vector<std::byte> bytes(20'000'000);
    BackgroundCopy copy(mesh, {0}, {1}, {bytes}, kTimeout);
    copy_in_one_window(copy);
  });
  EXPECT_TRUE(mentions(errors[0], "rank 1")) << errors[0];
}

// Another worker is lost while the receiver reads nothing.
TEST_P(BackgroundCopyTest, EndsInTheMiddleOfAWindow) {
  expect_no_errors(run_ranks(2, [](Mesh& mesh) {
    std::vector<std::byte> bytes(50'000'000);  // more than a connection holds
    if (mesh.rank() == 0) {
      BackgroundCopy copy(mesh, {0}, {1}, {bytes}, kTimeout);
      copy.open_window();
    } else {
      BackgroundCopy copy(mesh, {0}, {1}, {bytes}, kTimeout);
    }
  }));
}

TEST_P(BackgroundCopyTest, EndsWhenTheMeshIsAborted) {
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    std::vector<std::byte> bytes(50'000'000);
    BackgroundCopy copy(mesh, {0}, {1}, {bytes}, kTimeout);
    mesh.abort("the epoch ended");
    copy_in_one_window(copy);
  });
  for (const std::string& error : errors) EXPECT_TRUE(mentions(error, "the epoch ended")) << error;
}

TEST_P(BackgroundCopyTest, GivesUpASenderThatSendsNothing) {
  std::promise<void> given_up;
  const auto errors = run_ranks(2, [&given_up](Mesh& mesh) {
    std::vector<std::byte> bytes(100);
    BackgroundCopy copy(mesh, {0}, {1}, {bytes}, std::chrono::milliseconds(20));
    if (mesh.rank() == 0) return given_up.get_future().wait();
    try {
      copy.close_window();
    } catch (const Failure&) {
      given_up.set_value();
      throw;
    }
  });
  EXPECT_TRUE(mentions(errors[1], "rank 0") &&
              mentions(errors[1], "has sent nothing by the deadline"))
      << errors[1];
}

// From a process that does not follow the protocol.
TEST_P(BackgroundCopyTest, RefusesFramesThatAreNotTheNextOnes) {
  struct Case {
    FrameKind kind;
    std::uint64_t piece;
    std::size_t bytes;
    const char* message;
  };
  for (const Case& one :
       {Case{FrameKind::kBroadcast, 0, 100, "sent a frame (broadcast) in a background copy"},
        Case{FrameKind::kPiece, 1, 100, "sent 100 bytes in piece 1, expected 100 in 0 of 3"},
        Case{FrameKind::kPiece, 0, 99, "sent 99 bytes in piece 0, expected 100 in 0 of 3"},
        Case{FrameKind::kPiece, 0, 0, "sent 0 bytes in piece 0, expected 100 in 0 of 3"},
        Case{FrameKind::kPause, 0, 1, "sent 1 bytes in pause 0, expected 0 in 0 of 3"},
        Case{FrameKind::kPause, 2, 0, "sent 0 bytes in pause 2, expected 0 in 0 of 3"}}) {
    const auto errors = run_ranks(2, [&one](Mesh& mesh) {
      std::vector<std::byte> bytes(250);
      if (mesh.rank() == 0) {
        FrameExchange exchange(mesh, one.kind, mesh.next_operation(), test_deadline());
        exchange.send(1, std::span(bytes).first(one.bytes), one.piece);
        exchange.run();
        barrier(mesh, test_deadline());
      } else {
        BackgroundCopy copy(mesh, {0}, {1}, {bytes}, kTimeout, 100);
        copy.close_window();
      }
    });
    EXPECT_TRUE(mentions(errors[1], "rank 0") && mentions(errors[1], one.message)) << errors[1];
  }
  const auto errors = run_ranks(2, [](Mesh& mesh) {  // after the last piece
    std::vector<std::byte> bytes(100);
    BackgroundCopy copy(mesh, {0}, {1}, {bytes}, kTimeout, 100);
    copy_in_one_window(copy);
    if (mesh.rank() == 0) {
      FrameExchange exchange(mesh, FrameKind::kPiece, 1, test_deadline());
      exchange.send(1, {}, 1);
      exchange.run();
      barrier(mesh, test_deadline());
    } else {
      copy.close_window();
    }
  });
  EXPECT_TRUE(mentions(errors[1], "sent 0 bytes in piece 1, expected 0 in 1 of 1")) << errors[1];
}

// Beside operations on the mesh, with links of its own.
TEST_P(BackgroundCopyTest, UsesTheBackgroundOfAMesh) {
  tested_background = true;
  expect_no_errors(run_ranks(3, [](Mesh& mesh) {
    ASSERT_NE(mesh.background(), nullptr);
    EXPECT_EQ(mesh.streams(), 1);
    const std::vector<std::byte> sent = content(5'000'003);
    std::vector<std::byte> bytes = mesh.rank() == 2 ? std::vector<std::byte>(sent.size()) : sent;
    BackgroundCopy copy(*mesh.background(), {0, 1}, {2}, {bytes}, kTimeout);
    copy.open_window();
    for (int round = 0; round < 20; ++round) barrier(mesh, test_deadline());
    copy.wait_until_sent();
    copy.close_window();
    EXPECT_TRUE(bytes == sent);
  }));
  const auto errors = run_ranks(2, [](Mesh& mesh) {
    mesh.abort("the epoch ended");
    barrier(*mesh.background(), test_deadline());
  });
  for (const std::string& error : errors) EXPECT_TRUE(mentions(error, "the epoch ended")) << error;
  tested_background = false;
}

}  // namespace
}  // namespace tilewright::collectives
