#include "worker/runtime/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"

namespace tilewright::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Topology, ReadsTheKernelsListsOfCpus) {
  EXPECT_THAT(parse_cpu_list("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(parse_cpu_list("5"), ElementsAre(5));
  for (const char* bad : {"", "2-1", "x", "1,,2", "-1", "0-70000", "1-"})
    EXPECT_THAT(parse_cpu_list(bad), IsEmpty()) << bad;
}

TEST(Topology, GroupsTheAllowedCpusByNode) {
  const testing::TemporaryDirectory folder;
  // The directory of a machine with two sockets and a memory-only node.
  for (const auto& [node, list] :
       {std::pair("node0", "0-1,4-5"), {"node1", "2-3,6-7"}, {"node10", "8-9"}, {"node2", ""}}) {
    std::filesystem::create_directory(folder.path() / node);
    std::ofstream(folder.path() / node / "cpulist") << list << "\n";
  }
  std::ofstream(folder.path() / "possible") << "0-10\n";
  EXPECT_THAT(numa_nodes({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, folder.path()),
              ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7), ElementsAre(8, 9)));
  EXPECT_THAT(numa_nodes({2, 3}, folder.path()), ElementsAre(ElementsAre(2, 3)));
  EXPECT_THAT(numa_nodes({1, 8}, folder.path()), ElementsAre(ElementsAre(1), ElementsAre(8)));
  EXPECT_THAT(numa_nodes({0, 1}, folder.path() / "missing"), ElementsAre(ElementsAre(0, 1)));
}

TEST(Topology, FindsTheCpusOfThisProcess) { EXPECT_FALSE(allowed_cpus().empty()); }

}  // namespace
}  // namespace tilewright::runtime
