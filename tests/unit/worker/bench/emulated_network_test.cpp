#include "worker/bench/emulated_network.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/clock.h"
#include "tests/support/paths.h"
#include "worker/bench/rank_group.h"

namespace tilewright::bench {
namespace {

namespace fs = std::filesystem;

class EmulatedNetworkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() == 0) return;
    if (testing::prerequisites_required()) FAIL() << "network namespaces need root";
    GTEST_SKIP() << "network namespaces need root";
  }
};

TEST_F(EmulatedNetworkTest, ConnectsItsHostsOverTheirLinks) {
  constexpr std::size_t kBytes = 4 << 20;
  constexpr double kBitsPerSecond = 100e6;
  const EmulatedNetwork network(2, kBitsPerSecond);
  const net::Wait wait = net::within(std::chrono::minutes(5));
  net::Listener listener = network.listen(1);
  const MonotonicTime begin = monotonic_now();
  const auto results = run_ranks(2, [&](int rank) -> std::string {
    network.enter(rank);
    std::vector<std::byte> bytes(kBytes, std::byte(rank));
    if (rank == 0) {
      net::Socket socket = net::connect_to(listener.local_address(), wait).or_throw();
      socket.write_all(bytes, wait).or_throw();
      bytes.resize(1);
      socket.read_exact(bytes, wait).or_throw();  // the other rank has received everything
      return "";
    }
    EXPECT_EQ(net::wait_ready(listener.fd(), POLLIN, wait), net::Ready::kYes);
    net::Socket socket = listener.try_accept().or_throw();
    socket.read_exact(std::span(bytes), wait).or_throw();
    const double seconds = in_seconds(monotonic_now() - begin);
    socket.write_all(std::span(bytes).first(1), wait).or_throw();
    return std::to_string(seconds);
  });
  // A link's bucket holds less than 1 MiB.
  EXPECT_GE(std::stod(results[1]), (kBytes - (1 << 20)) * 8 / kBitsPerSecond);
}

TEST_F(EmulatedNetworkTest, LeavesTheCallingThreadInItsNamespace) {
  const fs::path link = "/proc/thread-self/ns/net";
  const fs::path before = fs::read_symlink(link);
  {
    const EmulatedNetwork network(1, 1e9);
    (void)network.listen(0);
    EXPECT_EQ(fs::read_symlink(link), before);
  }
  EXPECT_EQ(fs::read_symlink(link), before);
}

}  // namespace
}  // namespace tilewright::bench
