// Lists of CPUs and the topology that Linux describes in /sys.
#include "common/host/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/common/host/saved_topologies.h"

namespace tilewright::host {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CpuList, IsParsed) {
  EXPECT_THAT(parse_cpu_list("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(parse_cpu_list("5"), ElementsAre(5));
  for (const char* bad :
       {"", "2-1", "x", "1,,2", "-1", "0-70000", "1-", "8192", "3,2", "0-5,5-9", "1 2", "1\n"})
    EXPECT_THAT(parse_cpu_list(bad), IsEmpty()) << bad;
}

TEST(CpuList, IsFormattedWithRanges) {
  for (const char* list : {"0-2,8", "5", "0,2,4", "0-1,3-4,8191", ""})
    EXPECT_EQ(format_cpu_list(parse_cpu_list(list)), list);
}

// Counts of cores, packages and nodes of a topology.
struct Counts {
  std::size_t cpus, cores, packages, nodes;
  bool operator==(const Counts&) const = default;
};
Counts counts(const Topology& topology) {
  std::set<int> cores, packages, nodes;
  for (const Cpu& cpu : topology.cpus) {
    cores.insert(cpu.core);
    packages.insert(cpu.package);
    nodes.insert(cpu.node);
  }
  return {topology.cpus.size(), cores.size(), packages.size(), nodes.size()};
}

TEST(Topology, IsReadFromTheFilesOfLinux) {
  EXPECT_EQ(counts(saved_host(kTwoCpus).topology), (Counts{2, 2, 1, 1}));
  EXPECT_EQ(counts(saved_host(k16xlarge).topology), (Counts{64, 32, 1, 1}));
  EXPECT_EQ(counts(saved_host(kSnc4).topology), (Counts{112, 112, 2, 8}));
  EXPECT_EQ(counts(saved_host(kSnc4Threads).topology), (Counts{224, 112, 2, 8}));
  EXPECT_EQ(counts(saved_host(k240Cpus).topology), (Counts{240, 120, 2, 2}));
  const Topology snc = saved_host(kSnc4Threads).topology;
  EXPECT_EQ(*snc.find(181), (Cpu{.id = 181, .core = 69, .package = 1, .node = 4}));
  EXPECT_EQ(snc.find(224), nullptr);
  EXPECT_THAT(snc.memory_nodes, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Topology, KnowsOfflineCpusAndNodesWithoutMemory) {
  const Topology offline = saved_host(kOfflineCpus).topology;
  EXPECT_EQ(counts(offline), (Counts{6, 4, 1, 1}));
  EXPECT_EQ(offline.find(2), nullptr);
  EXPECT_EQ(offline.find(6)->core, 6) << "its sibling 2 is offline";
  EXPECT_EQ(offline.find(7)->core, 3);
  const Topology memoryless = saved_host(kMemorylessNode).topology;
  EXPECT_THAT(memoryless.memory_nodes, ElementsAre(0, 2));
  EXPECT_TRUE(memoryless.has_memory(0));
  EXPECT_FALSE(memoryless.has_memory(1));
}

// Each case breaks one file of a machine with two nodes.
TEST(Topology, IsOneNodeIfTheSystemDoesNotDescribeItsNodes) {
  const char* const files[][2] = {
      {"sys/devices/system/node/online", ""},
      {"sys/devices/system/node/online", "0-1,1-2\n"},
      {"sys/devices/system/node/online", "0-1,2000\n"},
      {"sys/devices/system/node/node1/cpulist", "many\n"},
      {"sys/devices/system/node/node1/cpulist", ""},
      {"sys/devices/system/node/node1/cpulist", "7-15\n"},  // 7 is in node 0
      {"sys/devices/system/node/node1/cpulist", "8-14\n"},  // 15 is in no node
  };
  for (const auto& [file, text] : files) {
    const testing::TemporaryDirectory root;
    write_sysfs(root.path(), kMemorylessNode);
    write_file(root.path() / file, text);
    const Topology topology = read_topology({0}, root.path());
    EXPECT_EQ(counts(topology), (Counts{16, 16, 2, 1})) << file << " " << text;
    EXPECT_TRUE(topology.has_memory(0));
  }
}

TEST(Topology, MakesACpuWithoutDescribedSiblingsACoreOfItsOwn) {
  for (const char* text : {"", "0-1", "9,8", "4-100000", "x"}) {
    const testing::TemporaryDirectory root;
    write_sysfs(root.path(), kOfflineCpus);
    write_file(root.path() / "sys/devices/system/cpu/cpu4/topology/thread_siblings_list", text);
    write_file(root.path() / "sys/devices/system/cpu/cpu4/topology/physical_package_id", "-1\n");
    EXPECT_EQ(*read_topology({0}, root.path()).find(4),
              (Cpu{.id = 4, .core = 4, .package = 0, .node = 0}))
        << text;
  }
}

TEST(Topology, HasTheAllowedCpusInOneNodeIfThereIsNoSysfs) {
  const testing::TemporaryDirectory root;
  const Topology topology = read_topology({1, 4, 7}, root.path());
  EXPECT_THAT(topology.cpus, ElementsAre(Cpu{1, 1, 0, 0}, Cpu{4, 4, 0, 0}, Cpu{7, 7, 0, 0}));
  EXPECT_THAT(topology.memory_nodes, ElementsAre(0));
}

TEST(Host, OfThisProcessHasCpus) {
  const Host host = this_host();
  EXPECT_FALSE(host.allowed.empty());
  for (const int cpu : host.allowed) EXPECT_NE(host.topology.find(cpu), nullptr);
}

}  // namespace
}  // namespace tilewright::host
