// The CPU quota of the process's cgroups.
#include "common/host/cgroups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/common/host/saved_topologies.h"

namespace tilewright::host {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

class Quota : public ::testing::Test {
 protected:
  void write(const char* file, const std::string& text) { write_file(root_.path() / file, text); }
  std::optional<double> quota() const { return cpu_quota(root_.path()); }
  const testing::TemporaryDirectory root_;
};

TEST_F(Quota, IsNotThereWithoutCgroupsOrLimits) {
  EXPECT_EQ(quota(), std::nullopt);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  for (const char* bad : {"", "100000", "many 100000", "-5 100000", "100000 0", "1e5 100000"}) {
    write("sys/fs/cgroup/cpu.max", bad);
    EXPECT_EQ(quota(), std::nullopt) << bad;
  }
}

TEST_F(Quota, IsTheSmallestOfAllParents) {
  write("proc/self/cgroup", "0::/system.slice/job.service\n");
  write("sys/fs/cgroup/system.slice/cpu.max", "350000 100000\n");
  write("sys/fs/cgroup/system.slice/job.service/cpu.max", "max 100000\n");
  EXPECT_THAT(quota(), Optional(3.5));
  write("sys/fs/cgroup/system.slice/job.service/cpu.max", "40000 20000\n");
  EXPECT_THAT(quota(), Optional(2));
}

TEST_F(Quota, IsThatOfTheMountedRootInAContainer) {
  write("proc/self/cgroup", "0::/kubepods/pod1/container\n");
  write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_THAT(quota(), Optional(1.5));
}

TEST_F(Quota, IsReadFromCgroupV1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/docker/one\n4:memory:/x\n");
  write("sys/fs/cgroup/cpu/docker/one/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/docker/one/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu/docker/one/cpu.cfs_quota_us", "350000\n");
  EXPECT_THAT(quota(), Optional(3.5));
}

TEST_F(Quota, DirectoriesOfTheHierarchiesAreListedFromTheOwnOneUp) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/b/c\n0::/d\nbroken\n");
  const auto at = [&](const char* path) { return root_.path() / "sys/fs/cgroup" / path; };
  const CgroupDirectories memory = cgroup_directories("memory", root_.path());
  EXPECT_THAT(memory.v2, ElementsAre(at("d"), root_.path() / "sys/fs/cgroup"));
  EXPECT_THAT(memory.v1, ElementsAre(at("memory/b/c"), at("memory/b"), at("memory")));
  EXPECT_THAT(cgroup_directories("cpu", root_.path()).v1, ElementsAre(at("cpu/a"), at("cpu")));
}

}  // namespace
}  // namespace tilewright::host
