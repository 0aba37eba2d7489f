// Tests the mesh and the all-reduce over TLS: same bits, encrypted and authenticated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "common/net/handshake.h"
#include "tests/unit/worker/collectives/cluster.h"
#include "tests/unit/worker/collectives/reference.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/reducer.h"

namespace tilewright::collectives {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr bool kWithTls = true;

TEST(MeshTls, SupportsBarrierBroadcastAndAllGather) {
  const std::string long_text(300'000, 'x');
  expect_no_errors(run_ranks(
      4,
      [&](Mesh& mesh) {
        EXPECT_TRUE(socket_of(mesh, (mesh.rank() + 1) % 4).encrypted());
        for (int round = 0; round < 5; ++round) {
          barrier(mesh, test_deadline());
          const std::string own = long_text + std::to_string(mesh.rank());
          const auto all = all_gather(mesh, own, 1'000'000, test_deadline());
          for (int rank = 0; rank < 4; ++rank) {
            EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == long_text + std::to_string(rank));
          }
          EXPECT_EQ(broadcast_string(mesh, 2, mesh.rank() == 2 ? "word" : "", 10, test_deadline()),
                    "word");
        }
      },
      kWithTls));
}

void expect_exact(int world, int shards, std::int64_t count, ReducerOptions options) {
  std::atomic<int> right{0};
  expect_no_errors(run_ranks(
      world,
      [&](Mesh& mesh) {
        Reducer reducer(mesh, even_split(world, shards), shards, options);
        for (unsigned step = 0; step < 2; ++step) {
          const auto gradients = shard_gradients(shards, count, step);
          LocalParts own(gradients, reducer.local_parts());
          const std::vector<Range> buckets{{count / 2, count}, {0, count / 2}};
          reducer.begin_step(own.view, buckets);
          reducer.start(0);
          reducer.start(1);
          reducer.wait(test_deadline());
          right += same_bits(own.sum(), tree_sum(gradients));
        }
      },
      kWithTls));
  EXPECT_EQ(right, 2 * world) << "world " << world << ", " << count << " elements";
}

TEST(MeshTls, MatchesTheReferenceBitForBit) {
  ReducerOptions options;
  options.chunk_elements = 1000;
  for (int world = 2; world <= 4; ++world) {
    for (const std::int64_t count : {1, 17, 20'011}) expect_exact(world, 8, count, options);
  }
}

TEST(MeshTls, TransfersMoreThanTheSocketBuffersHold) { expect_exact(2, 2, 3'000'011, {}); }

TEST(MeshTls, ExposesNoPlaintext) {
  const std::string words = "confidential gradients";
  std::string seen;
  net::Relay* relay = nullptr;
  expect_no_errors(through_relay(kWithTls, relay, [&](Mesh& mesh) {
    EXPECT_EQ(all_gather(mesh, words, 100, test_deadline()),
              (std::vector<std::string>{words, words}));
    barrier(mesh, test_deadline());
    if (mesh.rank() == 1) seen = relay->recorded();
  }));
  ASSERT_GT(seen.size(), 2 * words.size());
  EXPECT_EQ(seen.substr(0, 4), net::kTlsGreeting);
  const std::string magic("TWF1");  // at the start of every frame
  for (const std::string& plain : {words, magic, std::string("job-1"), std::string("TWA1")}) {
    EXPECT_THAT(seen, Not(HasSubstr(plain)));
  }
}

// Runs one rank with TLS and one without. Returns the errors of rank 0 and rank 1 at a deadline.
std::pair<std::string, std::string> build_mismatch(bool zero_has_tls) {
  Listeners listeners(2);
  const auto rank = [&](int which, bool tls) {
    return std::async(std::launch::async, [&, which, tls]() -> std::string {
      MeshConfig config = listeners.config(which);
      config.tls = tls;
      try {
        build_mesh(listeners.listeners[static_cast<std::size_t>(which)], config, test_key(),
                   monotonic_now() + std::chrono::milliseconds(200));
        return "no error";
      } catch (const Failure& failure) {
        return failure.what();
      }
    });
  };
  auto zero = rank(0, zero_has_tls), one = rank(1, !zero_has_tls);
  return {zero.get(), one.get()};
}

// The same once rank 1 has found out before the deadline how rank 0 connects.
std::pair<std::string, std::string> mismatch(bool zero_has_tls) {
  const MonotonicTime limit = test_deadline();
  while (true) {
    auto errors = build_mismatch(zero_has_tls);
    if (mentions(errors.second, "TLS") || monotonic_now() >= limit) return errors;
  }
}

TEST(MeshTls, ARankWithoutTlsReportsThatTheOtherUsesTls) {
  const auto [zero, one] = mismatch(true);
  EXPECT_THAT(zero, HasSubstr("the mesh is not complete by the deadline: missing: rank 1"));
  EXPECT_THAT(one, HasSubstr("requires TLS, which this end does not use"));
}

TEST(MeshTls, ARankWithTlsRejectsOneWithout) {
  const auto [zero, one] = mismatch(false);
  EXPECT_THAT(zero, HasSubstr("the mesh is not complete by the deadline: missing: rank 1"));
  EXPECT_THAT(one, HasSubstr("does not use TLS, but this rank does"));
}

}  // namespace
}  // namespace tilewright::collectives
