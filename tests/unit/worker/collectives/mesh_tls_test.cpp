// The mesh and the exchange over TLS: the same bits, unread and unaltered on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/unit/common/net/relay.h"
#include "tests/unit/worker/collectives/cluster.h"
#include "tests/unit/worker/collectives/reference.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/reducer.h"

namespace tilewright::collectives {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr bool kTls = true;

TEST(MeshTls, CarriesTheSmallOperations) {
  const std::string long_text(300'000, 'x');
  expect_no_errors(run_ranks(
      4,
      [&](Mesh& mesh) {
        EXPECT_TRUE(mesh.socket((mesh.rank() + 1) % 4).encrypted());
        for (int round = 0; round < 5; ++round) {
          barrier(mesh, soon());
          const std::string own = long_text + std::to_string(mesh.rank());
          const auto all = all_gather(mesh, own, 1'000'000, soon());
          for (int rank = 0; rank < 4; ++rank) {
            EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == long_text + std::to_string(rank));
          }
          EXPECT_EQ(broadcast_text(mesh, 2, mesh.rank() == 2 ? "word" : "", 10, soon()), "word");
        }
      },
      kTls));
}

void expect_exact(int world, int shards, std::int64_t count, ReducerOptions options) {
  std::atomic<int> right{0};
  expect_no_errors(run_ranks(
      world,
      [&](Mesh& mesh) {
        Reducer reducer(mesh, even_split(world, shards), shards, options);
        for (unsigned step = 0; step < 2; ++step) {
          const auto gradients = shard_gradients(shards, count, step);
          OwnParts own(gradients, reducer.own_parts());
          const std::vector<Range> buckets{{count / 2, count}, {0, count / 2}};
          reducer.begin_step(own.view, buckets);
          reducer.start(0);
          reducer.start(1);
          reducer.wait(soon());
          right += same_bits(own.sum(), tree_sum(gradients));
        }
      },
      kTls));
  EXPECT_EQ(right, 2 * world) << "world " << world << ", " << count << " elements";
}

TEST(MeshTls, GivesTheSameBitsAsTheDefinition) {
  ReducerOptions options;
  options.chunk_elements = 1000;
  for (int world = 2; world <= 4; ++world) {
    for (const std::int64_t count : {1, 17, 20'011}) expect_exact(world, 8, count, options);
  }
}

TEST(MeshTls, CarriesMoreThanTheSocketsHold) { expect_exact(2, 4, 3'000'011, {}); }

// Two ranks, rank 1 reaching rank 0 through somebody on the way, who sees `body` happen.
std::vector<std::string> through_relay(net::Relay*& relay, const RankBody& body) {
  Listeners listeners(2, kTls);
  net::Relay on_the_way(listeners.addresses[0]);
  relay = &on_the_way;
  const auto rank = [&](int which) {
    return std::async(std::launch::async, [&, which]() -> std::string {
      MeshConfig config = listeners.config(which);
      if (which == 1) config.peers[0] = on_the_way.address();
      try {
        body(*build_mesh(listeners.listeners[static_cast<std::size_t>(which)], config, test_key(),
                         soon()));
        return "";
      } catch (const Failure& failure) {
        return failure.what();
      }
    });
  };
  auto zero = rank(0), one = rank(1);
  return {zero.get(), one.get()};
}

TEST(MeshTls, ShowsNothingOnTheWay) {
  const std::string words = "gradients that nobody else may read";
  std::string seen;
  net::Relay* relay = nullptr;
  expect_no_errors(through_relay(relay, [&](Mesh& mesh) {
    EXPECT_EQ(all_gather(mesh, words, 100, soon()), (std::vector<std::string>{words, words}));
    barrier(mesh, soon());
    if (mesh.rank() == 1) seen = relay->recorded();
  }));
  ASSERT_GT(seen.size(), 2 * words.size());
  EXPECT_EQ(seen.substr(0, 4), net::kTlsGreeting);
  const std::string magic("TWF1");  // of every frame
  for (const std::string& plain : {words, magic, std::string("job-1"), std::string("TWA1")}) {
    EXPECT_THAT(seen, Not(HasSubstr(plain)));
  }
}

TEST(MeshTls, AnAlteredByteEndsTheStepAndNeverReachesASum) {
  const auto gradients = shard_gradients(2, 100'000);
  std::atomic<int> wrong{0};
  net::Relay* relay = nullptr;
  const auto errors = through_relay(relay, [&](Mesh& mesh) {
    Reducer reducer(mesh, even_split(2, 2), 2);
    for (int step = 0; step < 1000; ++step) {
      OwnParts own(gradients, reducer.own_parts());
      const std::vector<Range> buckets{{0, 100'000}};
      reducer.begin_step(own.view, buckets);
      reducer.start(0);
      reducer.wait(soon());
      wrong += !same_bits(own.sum(), tree_sum(gradients));
      if (step == 1 && mesh.rank() == 1) relay->alter_next_byte();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_THAT(errors[0], HasSubstr("may have altered it"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0"));
}

// Rank 0 with TLS or without, rank 1 the other way; what each says at its deadline.
std::pair<std::string, std::string> mismatch(bool zero_has_tls) {
  Listeners listeners(2);
  const auto rank = [&](int which, bool tls) {
    return std::async(std::launch::async, [&, which, tls]() -> std::string {
      MeshConfig config = listeners.config(which);
      config.tls = tls;
      try {
        build_mesh(listeners.listeners[static_cast<std::size_t>(which)], config, test_key(),
                   monotonic_now() + std::chrono::milliseconds(200));
        return "it was built";
      } catch (const Failure& failure) {
        return failure.what();
      }
    });
  };
  auto zero = rank(0, zero_has_tls), one = rank(1, !zero_has_tls);
  return {zero.get(), one.get()};
}

TEST(MeshTls, ARankWithoutItIsToldSo) {
  const auto [zero, one] = mismatch(true);
  EXPECT_THAT(zero, HasSubstr("the mesh is not complete by the deadline: missing: rank 1"));
  EXPECT_THAT(one, HasSubstr("speaks TLS only, and this end does not use it"));
}

TEST(MeshTls, ARankWithItDoesNotTalkToOneWithout) {
  const auto [zero, one] = mismatch(false);
  EXPECT_THAT(zero, HasSubstr("the mesh is not complete by the deadline: missing: rank 1"));
  EXPECT_THAT(one, HasSubstr("does not use TLS, as this rank does"));
}

}  // namespace
}  // namespace tilewright::collectives
