#include "worker/bench/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "common/base/result.h"

namespace tilewright::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Error error_of(const std::function<std::string(int)>& body) {
  try {
    run_ranks(2, body);
  } catch (const Failure& failure) {
    return failure.error();
  }
  return {ExitCode::kOk, "no failure"};
}

TEST(RunRanks, ReturnsTheTextsOfTheProcessesByRank) {
  int here = 0;
  EXPECT_THAT(run_ranks(3,
                        [&](int rank) {
                          here = 1;
                          return std::string(static_cast<std::size_t>(rank), '"');
                        }),
              ElementsAre("", "\"", "\"\""));
  EXPECT_EQ(here, 0) << "it runs in other processes";
}

TEST(RunRanks, ReportsTheFirstFailureAndNotTheLostPeersThatFollow) {
  const Error error = error_of([](int rank) -> std::string {
    if (rank == 0) throw Failure(ExitCode::kPeerLost, "rank 1 is lost");
    throw Failure(ExitCode::kMemory, "too large");
  });
  EXPECT_EQ(error.code, ExitCode::kMemory);
  EXPECT_EQ(error.message, "too large");
}

TEST(RunRanks, ReportsAKilledRank) {
  const Error error = error_of([](int rank) -> std::string {
    if (rank == 1) raise(SIGKILL);
    throw Failure(ExitCode::kPeerLost, "rank 1 is lost");
  });
  EXPECT_EQ(error.code, ExitCode::kInternal);
  EXPECT_EQ(error.message, "rank 1 was killed");
}

TEST(CheckSums, FindsAWrongSum) {
  std::vector<float> sum(100'000);
  std::vector<float> other(sum.size());
  fill_summands(sum, 0);
  fill_summands(other, 1);
  EXPECT_NE(sum, other);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  EXPECT_NO_THROW(check_sums(sum, 2, 1));
  sum[70'000] += 1;
  EXPECT_NO_THROW(check_sums(sum, 2, 70'001));
  try {
    check_sums(sum, 2, 7);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("sum 70000 of 100000"));
  }
}

}  // namespace
}  // namespace tilewright::bench
