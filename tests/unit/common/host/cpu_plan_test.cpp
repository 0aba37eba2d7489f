// The CPUs of each process on saved topologies.
#include "common/host/cpu_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/unit/common/host/saved_topologies.h"

namespace tilewright::host {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string cpus(const ProcessPlan& process) { return format_cpu_list(process.cpus); }
std::string thread_cpus(const ProcessPlan& process) { return format_cpu_list(process.thread_cpus); }

// The affinity masks of all processes.
std::vector<std::string> masks(const CpuPlan& plan) {
  std::vector<std::string> result;
  for (const ProcessPlan& process : plan.processes) result.push_back(cpus(process));
  return result;
}

// What holds for every plan, derived from the topology alone.
void check(const Host& host, const CpuPlan& plan) {
  std::set<int> nodes, cores;
  for (const int id : host.allowed) {
    nodes.insert(host.topology.find(id)->node);
    cores.insert(host.topology.find(id)->core);
  }
  std::map<int, int> threads_on_core, processes_on_core;
  for (const ProcessPlan& process : plan.processes) {
    EXPECT_GE(process.threads, 1);
    EXPECT_GE(process.max_threads, process.threads);
    ASSERT_FALSE(process.cpus.empty());
    std::set<int> own_nodes, own_cores;
    for (const int id : process.cpus) {
      EXPECT_TRUE(std::ranges::binary_search(host.allowed, id)) << id;
      own_nodes.insert(host.topology.find(id)->node);
      own_cores.insert(host.topology.find(id)->core);
    }
    EXPECT_LE(process.threads, static_cast<int>(own_cores.size()));
    for (const int core : own_cores) ++processes_on_core[core];
    if (!process.thread_cpus.empty()) {
      EXPECT_EQ(process.thread_cpus.size(), static_cast<std::size_t>(process.threads));
    }
    for (const int id : process.thread_cpus) {
      EXPECT_TRUE(std::ranges::binary_search(process.cpus, id)) << id;
      ++threads_on_core[host.topology.find(id)->core];
    }
    if (plan.processes.size() >= nodes.size() && plan.processes.size() <= cores.size()) {
      EXPECT_EQ(own_nodes.size(), 1U) << "a process on several nodes";
    }
    for (const int node : process.memory_nodes) {
      EXPECT_TRUE(host.topology.has_memory(node));
      EXPECT_TRUE(own_nodes.contains(node));
    }
  }
  for (const auto& [core, threads] : threads_on_core) EXPECT_EQ(threads, 1) << "core " << core;
  const bool limited = host.quota && std::ceil(*host.quota) < static_cast<double>(cores.size());
  if (limited || plan.processes.size() > cores.size()) return;
  for (const auto& [core, processes] : processes_on_core)
    EXPECT_EQ(processes, 1) << "core " << core;
  EXPECT_EQ(processes_on_core.size(), cores.size()) << "all cores are used";
}

CpuPlan checked_plan(const Host& host, std::optional<int> processes) {
  CpuPlan plan = plan_cpus(host, processes);
  check(host, plan);
  if (processes) {
    EXPECT_EQ(plan.processes.size(), static_cast<std::size_t>(*processes));
  }
  return plan;
}

TEST(CpuPlan, HoldsItsRulesOnEveryTopologyAndNumberOfProcesses) {
  for (const char* topology :
       {kTwoCpus, k16xlarge, kSnc4, kSnc4Threads, k240Cpus, kMemorylessNode, kOfflineCpus}) {
    SCOPED_TRACE(topology);
    const Host host = saved_host(topology);
    Host limited = host;
    limited.quota = 3.5;
    checked_plan(host, std::nullopt);
    checked_plan(limited, std::nullopt);
    for (int processes = 1; processes <= 40; ++processes) {
      checked_plan(host, processes);
      int threads = 0;
      for (const ProcessPlan& process : checked_plan(limited, processes).processes)
        threads += process.threads;
      EXPECT_LE(threads, std::max(4, processes));
    }
  }
}

TEST(CpuPlan, OfALaptopIsOneProcessWithAThreadPerCore) {
  const CpuPlan plan = checked_plan(saved_host(kTwoCpus), std::nullopt);
  EXPECT_THAT(masks(plan), ElementsAre("0-1"));
  EXPECT_EQ(plan.of(0).threads, 2);
  EXPECT_EQ(plan.of(0).max_threads, 2);
  EXPECT_EQ(thread_cpus(plan.of(0)), "0-1");
  EXPECT_THAT(plan.of(0).memory_nodes, IsEmpty()) << "there is one node";
  EXPECT_THAT(plan.reasons, ElementsAre("One process: the allowed CPUs are in one NUMA node."));
  EXPECT_THAT(masks(checked_plan(saved_host(kTwoCpus), 2)), ElementsAre("0", "1"));
}

TEST(CpuPlan, UsesOneHyperThreadOfEachCore) {
  const CpuPlan plan = checked_plan(saved_host(k16xlarge), std::nullopt);
  EXPECT_THAT(masks(plan), ElementsAre("0-63"));
  EXPECT_EQ(plan.of(0).threads, 32);
  EXPECT_EQ(plan.of(0).max_threads, 64) << "OMP_NUM_THREADS may ask for hyper-threads";
  EXPECT_EQ(thread_cpus(plan.of(0)), "0-31");
  EXPECT_THAT(plan.reasons, Contains("The 64 allowed CPUs are hyper-threads of 32 cores; a core "
                                     "runs one thread, because its hyper-threads share its "
                                     "multiply units."));
  // The hyper-threads of a core stay in one process.
  EXPECT_THAT(masks(checked_plan(saved_host(k16xlarge), 2)),
              ElementsAre("0-15,32-47", "16-31,48-63"));
}

TEST(CpuPlan, HasOneProcessOnEachSubNumaCluster) {
  const CpuPlan plan = checked_plan(saved_host(kSnc4), std::nullopt);
  EXPECT_THAT(masks(plan),
              ElementsAre("0-13", "14-27", "28-41", "42-55", "56-69", "70-83", "84-97", "98-111"));
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(plan.of(rank).threads, 14);
    EXPECT_THAT(plan.of(rank).memory_nodes, ElementsAre(rank));
  }
  EXPECT_EQ(plan.of(8).cpus, plan.of(0).cpus);
  EXPECT_THAT(plan.reasons, ElementsAre("8 processes: one for each NUMA node with allowed CPUs."));
  const CpuPlan threads = checked_plan(saved_host(kSnc4Threads), std::nullopt);
  EXPECT_EQ(cpus(threads.of(3)), "42-55,154-167");
  EXPECT_EQ(thread_cpus(threads.of(3)), "42-55");
}

TEST(CpuPlan, DividesNodesAmongMoreProcessesAndGivesFewerOnesWholeNodes) {
  const Host host = saved_host(kSnc4Threads);
  const CpuPlan sockets = checked_plan(host, 2);
  EXPECT_THAT(masks(sockets), ElementsAre("0-55,112-167", "56-111,168-223"));
  EXPECT_THAT(sockets.of(1).memory_nodes, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(sockets.reasons, Contains(HasSubstr("there are 8 nodes and 2 processes")));
  const CpuPlan halves = checked_plan(host, 16);
  EXPECT_EQ(cpus(halves.of(0)), "0-6,112-118");
  EXPECT_EQ(cpus(halves.of(15)), "105-111,217-223");
  const CpuPlan one = checked_plan(host, 1);
  EXPECT_EQ(one.of(0).threads, 112);
  EXPECT_THAT(one.of(0).memory_nodes, SizeIs(8));
  // Three do not divide eight nodes.
  EXPECT_EQ(checked_plan(host, 3).of(0).threads, 37);
}

TEST(CpuPlan, Of240CpusHasOneProcessOnEachSocket) {
  const CpuPlan plan = checked_plan(saved_host(k240Cpus), std::nullopt);
  EXPECT_THAT(masks(plan), ElementsAre("0-59,120-179", "60-119,180-239"));
  EXPECT_EQ(thread_cpus(plan.of(0)), "0-59");
  EXPECT_EQ(thread_cpus(plan.of(1)), "60-119");
}

TEST(CpuPlan, OfACpusetThatCutsNodesUnevenlyIsOneProcess) {
  const CpuPlan uneven = checked_plan(saved_host(kSnc4, "10-29"), std::nullopt);
  EXPECT_THAT(masks(uneven), ElementsAre("10-29"));
  EXPECT_THAT(uneven.of(0).memory_nodes, ElementsAre(0, 1, 2));
  EXPECT_THAT(uneven.reasons,
              Contains("One process: the allowed CPUs are unevenly divided over 3 NUMA nodes, with "
                       "2 to 14 cores, and processes would share the work evenly."));
  // If the user insists on three, no node is shared.
  const CpuPlan three = checked_plan(saved_host(kSnc4, "10-29"), 3);
  EXPECT_THAT(masks(three), ElementsAre("10-13", "14-27", "28-29"));
  EXPECT_THAT(three.reasons, Contains(HasSubstr("Processes have 2 to 14 threads")));
  // Of five, each node gets as many as its cores are worth.
  EXPECT_THAT(masks(checked_plan(saved_host(kSnc4, "10-29"), 5)),
              ElementsAre("10-13", "14-17", "18-22", "23-27", "28-29"));
  EXPECT_THAT(masks(checked_plan(saved_host(kSnc4, "4-23"), std::nullopt)),
              ElementsAre("4-13", "14-23"));
}

TEST(CpuPlan, WithAQuotaBelowTheCoresLeavesThreadsToTheKernel) {
  const CpuPlan plan = checked_plan(saved_host(kSnc4Threads, "", 3.5), std::nullopt);
  EXPECT_THAT(masks(plan), ElementsAre("0-223"));
  EXPECT_EQ(plan.of(0).threads, 4);
  EXPECT_EQ(plan.of(0).max_threads, 4);
  EXPECT_THAT(plan.of(0).thread_cpus, IsEmpty());
  EXPECT_THAT(plan.of(0).memory_nodes, IsEmpty());
  EXPECT_THAT(plan.reasons, Contains("The CPU quota of 3.5 CPUs allows 4 threads in total. The "
                                     "kernel moves them, because other programs may run on the "
                                     "same CPUs."));
  EXPECT_THAT(plan.reasons, Not(Contains(HasSubstr("several NUMA nodes"))));

  const CpuPlan large = checked_plan(saved_host(kSnc4Threads, "", 50), std::nullopt);
  EXPECT_THAT(large.processes, SizeIs(4)) << "50 CPUs are those of four nodes of 14 cores";
  EXPECT_EQ(large.of(0).threads, 12);
  EXPECT_EQ(cpus(large.of(1)), "28-55,140-167");

  const CpuPlan two = checked_plan(saved_host(k16xlarge, "", 3.5), 2);
  EXPECT_THAT(masks(two), ElementsAre("0-63", "0-63")) << "one node, which other programs share";
  EXPECT_EQ(two.of(0).threads, 2);
  // A quota that all cores reach changes nothing: the kubelet gives one to exclusive CPUs, too.
  EXPECT_EQ(thread_cpus(checked_plan(saved_host(k16xlarge, "0-7,32-39", 16), 1).of(0)), "0-7");
  EXPECT_EQ(checked_plan(saved_host(kTwoCpus, "", 0.1), 1).of(0).threads, 1);
}

TEST(CpuPlan, OfACpusetOfHyperThreadsOnlyNamesTheirSiblings) {
  const CpuPlan plan = checked_plan(saved_host(k16xlarge, "32-63"), std::nullopt);
  EXPECT_EQ(plan.of(0).threads, 32);
  EXPECT_EQ(thread_cpus(plan.of(0)), "32-63");
  EXPECT_THAT(plan.reasons, Contains("CPUs 32-63 share their cores with CPUs 0-31, which this "
                                     "process may not use; programs there slow it down."));
  const CpuPlan pairs = checked_plan(saved_host(k16xlarge, "3,5,35,37"), std::nullopt);
  EXPECT_EQ(pairs.of(0).threads, 2);
  EXPECT_THAT(pairs.reasons, Not(Contains(HasSubstr("may not use"))));
  EXPECT_THAT(checked_plan(saved_host(k16xlarge, "3,35-36"), 1).reasons,
              Contains(HasSubstr("CPUs 36 share their cores with CPUs 4,")));
}

TEST(CpuPlan, SkipsOfflineCpus) {
  const CpuPlan plan = checked_plan(saved_host(kOfflineCpus), 1);
  EXPECT_EQ(cpus(plan.of(0)), "0-1,3-4,6-7");
  EXPECT_EQ(thread_cpus(plan.of(0)), "0-1,3,6");
}

TEST(CpuPlan, LeavesTheMemoryOfANodeWithoutMemoryToTheKernel) {
  const CpuPlan plan = checked_plan(saved_host(kMemorylessNode), std::nullopt);
  EXPECT_THAT(masks(plan), ElementsAre("0-7", "8-15"));
  EXPECT_THAT(plan.of(0).memory_nodes, ElementsAre(0));
  EXPECT_THAT(plan.of(1).memory_nodes, IsEmpty());
  EXPECT_THAT(plan.reasons,
              Contains("NUMA node 1 has no memory; the kernel uses that of the nearest node."));
}

TEST(CpuPlan, OfMoreProcessesThanCoresSharesAllCpus) {
  const CpuPlan plan = checked_plan(saved_host(kTwoCpus), 3);
  EXPECT_THAT(masks(plan), Each(std::string("0-1")));
  EXPECT_EQ(plan.of(2).threads, 1);
  EXPECT_EQ(plan.of(2).max_threads, 1);
  EXPECT_THAT(plan.reasons, ElementsAre("The 3 processes share all CPUs: there are only 2 cores."));
}

}  // namespace
}  // namespace tilewright::host
