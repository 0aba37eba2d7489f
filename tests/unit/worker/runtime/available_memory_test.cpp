// Tests memory limits read from files in the formats of /proc and /sys.
#include "worker/runtime/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/paths.h"

namespace tilewright::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMib = 1 << 20;

class AvailableMemory : public ::testing::Test {
 protected:
  // 8000 MiB MemAvailable, no limits.
  void SetUp() override {
    write("proc/meminfo",
          "MemTotal:       16384000 kB\nMemFree:         1024000 kB\n"
          "MemAvailable:    8192000 kB\n");
  }
  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((directory_.path() / path).parent_path());
    std::ofstream(directory_.path() / path) << text;
  }
  static std::string mib(std::uint64_t count) { return std::to_string(count * kMib) + "\n"; }
  std::uint64_t available() const { return available_memory(directory_.path()) / kMib; }

  testing::TemporaryDirectory directory_;
};

TEST_F(AvailableMemory, IsMemAvailableWithoutALimit) {
  EXPECT_EQ(available(), 8000);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  write("proc/self/limits",
        "Max address space         unlimited            unlimited            bytes\n");
  EXPECT_EQ(available(), 8000);
}

TEST_F(AvailableMemory, IsTheContainerLimitMinusWhatIsNotFileCache) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", mib(4000));
  write("sys/fs/cgroup/memory.current", mib(3900));
  EXPECT_EQ(available(), 100);
  // Most of the usage is file cache.
  write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_anon 5\nactive_anon 7\nactive_file " +
                                         mib(2000) + "inactive_file " + mib(1500));
  EXPECT_EQ(available(), 3600);
}

TEST_F(AvailableMemory, IsBoundedByEveryParentCgroup) {
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/one/memory.current", mib(10));
  write("sys/fs/cgroup/jobs/memory.max", mib(700));
  write("sys/fs/cgroup/jobs/memory.current", mib(300));
  EXPECT_EQ(available(), 400);
  write("sys/fs/cgroup/jobs/one/memory.max", mib(60));
  EXPECT_EQ(available(), 50);
}

TEST_F(AvailableMemory, UsesTheMountedRootForACgroupPathOfTheHost) {
  write("proc/self/cgroup", "0::/kubepods/pod1/container\n");
  write("sys/fs/cgroup/memory.max", mib(500));
  write("sys/fs/cgroup/memory.current", mib(100));
  EXPECT_EQ(available(), 400);
}

TEST_F(AvailableMemory, IsBoundedByCgroupV1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/one\n1:name=systemd:/y\n");
  write("sys/fs/cgroup/memory/docker/one/memory.limit_in_bytes", mib(900));
  write("sys/fs/cgroup/memory/docker/one/memory.usage_in_bytes", mib(500));
  write("sys/fs/cgroup/memory/docker/one/memory.stat",
        "inactive_file 3\ntotal_inactive_file " + mib(80) + "total_active_file " + mib(120));
  // cgroup v1 writes "no limit" as the largest number of whole pages.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available(), 600);
}

TEST_F(AvailableMemory, IsBoundedByTheAddressSpace) {
  write("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max cpu time              unlimited            unlimited            seconds\n"
        "Max address space         " +
            std::to_string(1000 * kMib) + "           unlimited            bytes\n");
  write("proc/self/statm",
        std::to_string(300 * kMib / static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))) +
            " 5 4 3 0 2 0\n");
  EXPECT_EQ(available(), 700);
}

TEST_F(AvailableMemory, PoolNamesMatchOnlyForSharedPools) {
  write("proc/sys/kernel/random/boot_id", "7d0c\n");
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", mib(900));
  write("sys/fs/cgroup/jobs/memory.max", mib(700));
  const auto one = memory_pools(directory_.path());
  ASSERT_EQ(one.size(), 3);
  EXPECT_EQ(one[0].left / kMib, 8000);
  EXPECT_EQ(one[1].left / kMib, 900);
  EXPECT_EQ(one[2].left / kMib, 700);
  // Another process in a sibling cgroup.
  write("proc/self/cgroup", "0::/jobs/two\n");
  write("sys/fs/cgroup/jobs/two/memory.max", mib(900));
  const auto two = memory_pools(directory_.path());
  ASSERT_EQ(two.size(), 3);
  EXPECT_EQ(two[0].name, one[0].name);
  EXPECT_NE(two[1].name, one[1].name);
  EXPECT_EQ(two[2].name, one[2].name);
  EXPECT_NE(one[1].name, one[2].name);
  // The same cgroups on another machine.
  write("proc/sys/kernel/random/boot_id", "93fe\n");
  const auto elsewhere = memory_pools(directory_.path());
  ASSERT_EQ(elsewhere.size(), 3);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(elsewhere[i].name, two[i].name);
}

TEST_F(AvailableMemory, HasNoPoolForACgroupWithoutALimit) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(memory_pools(directory_.path()).size(), 1);
}

TEST_F(AvailableMemory, AnonymousRssExcludesFilePages) {
  EXPECT_EQ(anonymous_rss(directory_.path()), 0);
  write("proc/self/statm", "9000 700 300 5 0 1000 0\n");
  EXPECT_EQ(anonymous_rss(directory_.path()),
            400 * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_GT(anonymous_rss(), 0);
}

TEST_F(AvailableMemory, PeakRssIsTheHighWaterMark) {
  EXPECT_EQ(peak_rss(directory_.path()), 0);
  write("proc/self/status", "VmPeak:\t  9000 kB\nVmHWM:\t  700 kB\nVmRSS:\t  500 kB\n");
  EXPECT_EQ(peak_rss(directory_.path()), 700 * 1024);
  EXPECT_GE(peak_rss(), anonymous_rss());
}

TEST_F(AvailableMemory, IsZeroWhenUsageExceedsTheLimit) {
  write("sys/fs/cgroup/memory.max", mib(100));
  write("sys/fs/cgroup/memory.current", mib(130));
  EXPECT_EQ(available(), 0);
}

TEST_F(AvailableMemory, OfThisMachineIsPositive) { EXPECT_GT(available_memory(), kMib); }

}  // namespace
}  // namespace tilewright::runtime
