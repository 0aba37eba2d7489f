// The CPUs of one process among those of its launcher or agent.
#include "worker/cli/process_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/result.h"
#include "common/host/cpu_list.h"
#include "tests/unit/common/host/saved_topologies.h"

namespace tilewright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GetVariable variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  };
}

std::string cpus(const host::ProcessPlan& plan) { return host::format_cpu_list(plan.cpus); }

TEST(ProcessPlan, OfASingleProcessHasAllCores) {
  const host::ProcessPlan plan =
      process_plan(host::saved_host(host::k240Cpus), std::nullopt, false, variables({}));
  EXPECT_EQ(cpus(plan), "0-239");
  EXPECT_EQ(plan.threads, 120);
}

TEST(ProcessPlan, OfAnAgentsProcessIsThatOfItsLocalRank) {
  const host::Host host = host::saved_host(host::k240Cpus);
  const auto plan = [&](const char* rank) {
    return process_plan(host, std::nullopt, false,
                        variables({{"LOCAL_WORLD_SIZE", "2"}, {"LOCAL_RANK", rank}}));
  };
  EXPECT_EQ(cpus(plan("0")), "0-59,120-179");
  EXPECT_EQ(cpus(plan("1")), "60-119,180-239");
  EXPECT_THAT(plan("1").memory_nodes, ElementsAre(1));
  for (const char* bad : {"x", "-1", "70000"}) {
    try {
      plan(bad);
      ADD_FAILURE() << bad;
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), HasSubstr("LOCAL_RANK: found \""));
    }
  }
}

// Rank 5 of 8 on two hosts; the second one has ranks 4 to 7.
elastic::LaunchedProcess launched() {
  elastic::LaunchedProcess process;
  process.rank = 5;
  process.world = 8;
  process.local_rank = 1;
  process.local_world = 4;
  return process;
}

TEST(ProcessPlan, OfALauncherThatDoesNotBindIsThatOfItsLocalRank) {
  const host::Host host = host::saved_host(host::kSnc4);
  EXPECT_EQ(cpus(process_plan(host, launched(), false, variables({{"LOCAL_RANK", "0"}}))), "28-55");
  elastic::LaunchedProcess unknown = launched();
  unknown.local_world = 0;
  unknown.local_rank = 0;
  EXPECT_EQ(cpus(process_plan(host, unknown, false, variables({}))), "0-111");
}

TEST(ProcessPlan, OfAProcessThatItsLauncherHasBoundIsItsMaskWithAShareOfTheQuota) {
  const host::Host bound = host::saved_host(host::kSnc4, "14-27");
  EXPECT_EQ(cpus(process_plan(bound, launched(), true, variables({}))), "14-27");
  EXPECT_EQ(process_plan(bound, launched(), true, variables({})).threads, 14);
  const host::Host limited = host::saved_host(host::kSnc4, "14-27", 20);
  EXPECT_EQ(process_plan(limited, launched(), true, variables({})).threads, 5);
}

}  // namespace
}  // namespace tilewright::cli
