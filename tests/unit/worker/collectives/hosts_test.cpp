#include "worker/collectives/hosts.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/worker/collectives/cluster.h"
#include "worker/collectives/buckets.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/step_exchange.h"

namespace tilewright::collectives {
namespace {

// Ranks share memory if their hosts are equal.
std::vector<std::vector<bool>> links_of(const std::vector<int>& hosts) {
  std::vector<std::vector<bool>> shares(hosts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    for (const int host : hosts) shares[i].push_back(host == hosts[i]);
  }
  return shares;
}

TEST(RanksPerHost, IsTheNumberOfAdjacentRanksThatShareMemory) {
  EXPECT_EQ(ranks_per_host(links_of({0, 0, 1, 1})), 2);
  EXPECT_EQ(ranks_per_host(links_of({0, 0, 0, 1, 1, 1})), 3);
  EXPECT_EQ(ranks_per_host(links_of({0, 0, 0, 0, 1, 1})), 2);  // twice on the larger host
}

TEST(RanksPerHost, IsOneIfHostsAreUnequalOrRanksAreNotAdjacent) {
  EXPECT_EQ(ranks_per_host(links_of({0, 1, 0, 1})), 1);
  EXPECT_EQ(ranks_per_host(links_of({0, 0, 0, 1})), 1);
  EXPECT_EQ(ranks_per_host(links_of({0, 1, 2, 3})), 1);
  EXPECT_EQ(ranks_per_host(links_of({0, 0, 1, 1, 2})), 1);
}

TEST(RanksPerHost, IsOneOnASingleHost) {
  EXPECT_EQ(ranks_per_host(links_of({0})), 1);
  EXPECT_EQ(ranks_per_host(links_of({0, 0})), 1);
  EXPECT_EQ(ranks_per_host(links_of({0, 0, 0, 0})), 1);
}

TEST(RanksPerHost, IsOneIfAPairOfAHostDoesNotShareMemory) {
  auto shares = links_of({0, 0, 1, 1});
  shares[3][2] = false;
  EXPECT_EQ(ranks_per_host(shares), 1);
}

TEST(ChunkElements, GrowWithTheHostsUpToABucket) {
  const std::int64_t of_two = chunk_elements_for(2);
  EXPECT_EQ(chunk_elements_for(1), of_two);
  EXPECT_EQ(of_two, ReducerOptions{}.chunk_elements);
  EXPECT_EQ(chunk_elements_for(8), 4 * of_two);
  EXPECT_EQ(chunk_elements_for(64), kBucketElements);
}

TEST(AgreeOnHosts, GivesAllRanksTheSameNumber) {
  for (const SharedMemory links : {SharedMemory::kNever, SharedMemory::kIfPossible}) {
    tested_links = links;
    std::atomic<int> right{0};
    expect_no_errors(run_ranks(4, [&](Mesh& mesh) {
      right += agree_on_hosts(mesh, test_deadline()).ranks_per_host == 1;
    }));
    EXPECT_EQ(right, 4);
  }
  tested_links = SharedMemory::kNever;
}

TEST(AgreeOnHosts, RefusesARowOfAnotherLengthOrWithOtherDigits) {
  for (const char* row : {"111", "1121"}) {
    const auto errors = run_ranks(4, [&](Mesh& mesh) {
      if (mesh.rank() == 2) {
        all_gather(mesh, row, 4, test_deadline());
      } else {
        agree_on_hosts(mesh, test_deadline());
      }
    });
    EXPECT_TRUE(mentions(errors[0], "rank 2 (")) << errors[0];
    EXPECT_TRUE(mentions(errors[0], "expected 4 digits 0 or 1")) << errors[0];
  }
}

}  // namespace
}  // namespace tilewright::collectives
