// Binding a process on this machine.
#include "common/host/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "common/host/cpu_list.h"
#include "common/host/host.h"

namespace tilewright::host {
namespace {

using ::testing::ElementsAre;

int memory_policy() {
  int policy = -1;
  EXPECT_EQ(syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0), 0);
  return policy;
}

TEST(BitMask, HoldsNumbersUpToTheLargestCpu) {
  EXPECT_THAT(BitMask({0, 63, 64, 1024, kMaxCpu}).numbers(), ElementsAre(0, 63, 64, 1024, kMaxCpu));
  EXPECT_DEATH(BitMask({kMaxCpu + 1}), "CPU or node 8192");
}

// In threads of their own, so that other tests keep their CPUs and memory.
TEST(Binding, LimitsTheThreadAndThoseThatItStarts) {
  std::thread([] {
    const std::vector<int> last = {thread_affinity().back()};
    ProcessPlan plan;
    plan.cpus = last;
    bind_process(plan);
    EXPECT_EQ(thread_affinity(), last);
    EXPECT_EQ(memory_policy(), MPOL_DEFAULT) << "the plan names no memory";
    std::thread([&] { EXPECT_EQ(thread_affinity(), last); }).join();
  }).join();
}

TEST(Binding, ReportsCpusThatDoNotExist) {
  std::thread([] {
    const std::vector<int> before = thread_affinity();
    EXPECT_FALSE(bind_thread({kMaxCpu}).ok());
    ProcessPlan plan;
    plan.cpus = {kMaxCpu};
    plan.memory_nodes = {0};
    bind_process(plan);
    EXPECT_EQ(thread_affinity(), before);
    EXPECT_EQ(memory_policy(), MPOL_DEFAULT);
  }).join();
}

TEST(Binding, PrefersTheMemoryOfItsNodesUnlessAPolicyIsSet) {
  std::thread([] {
    if (!prefer_memory({this_host().topology.memory_nodes.front()}))
      GTEST_SKIP() << "this machine has no permission for set_mempolicy";
    EXPECT_EQ(memory_policy(), MPOL_PREFERRED);
    EXPECT_FALSE(prefer_memory({0})) << "a policy is set";
  }).join();
  std::thread([] { EXPECT_FALSE(prefer_memory({1023})) << "no such node"; }).join();
}

}  // namespace
}  // namespace tilewright::host
