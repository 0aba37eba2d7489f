#include "worker/elastic/local_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <unistd.h>

#include "common/net/connect.h"
#include "tests/support/paths.h"
#include "tests/support/scoped_variable.h"
#include "tests/unit/worker/elastic/environment.h"

namespace tilewright::elastic {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// A generous deadline: it only ends a test that would otherwise hang.
net::Wait soon() { return net::within(seconds(60)); }

TEST(LocalHost, KnowsItsNamesAndAddresses) {
  char own[HOST_NAME_MAX + 1] = {};
  ASSERT_EQ(gethostname(own, HOST_NAME_MAX), 0);
  for (const std::string& name : {std::string("localhost"), std::string("127.0.0.1"),
                                  std::string("::1"), std::string("127.0.1.1"), std::string(own)})
    EXPECT_TRUE(is_this_host(name, soon()).or_throw()) << name;
  EXPECT_FALSE(is_this_host("192.0.2.7", soon()).or_throw());  // for documentation: RFC 5737
  EXPECT_FALSE(is_this_host(kNoHost, soon()).ok());
}

TEST(LocalHost, LooksUpNoNameAfterTheEndOfTheWait) {
  net::WakeUp cancel;
  cancel.signal();
  for (const net::Wait& wait : {net::within(seconds(20), &cancel), net::within(seconds(0))}) {
    EXPECT_THAT(is_this_host(kNoHost, wait).error().message, HasSubstr("in time"));
    EXPECT_FALSE(address_towards(kNoHost, wait).ok());
    EXPECT_TRUE(is_this_host("localhost", wait).or_throw()) << "needs no look-up";
    EXPECT_TRUE(is_this_host("127.0.0.1", wait).or_throw()) << "needs no look-up";
  }
}

TEST(LocalHost, FindsAddresses) {
  EXPECT_EQ(interface_address("lo").or_throw(), "127.0.0.1");
  EXPECT_THAT(interface_address("eth99").error().message,
              HasSubstr("--interface: found \"eth99\", expected an interface with an address: "));
  EXPECT_EQ(address_towards("127.0.0.1", soon()).or_throw(), "127.0.0.1");
  EXPECT_FALSE(address_towards(kNoHost, soon()).ok());
}

TEST(LocalHost, FindsConsecutiveFreePorts) {
  const net::Listener taken = net::Listener::bind({"", 0}).or_throw();
  const std::uint16_t port = taken.local_address().port;
  EXPECT_EQ(find_free_ports(port, port, 1), std::nullopt);
  EXPECT_EQ(find_free_ports(port, port, 2), std::nullopt) << "a range of one port";
  const auto found = find_free_ports(20000, 21000, 3, 7);
  ASSERT_TRUE(found);
  EXPECT_GE(*found, 20000);
  EXPECT_LE(*found, 20998);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(net::Listener::bind({"", static_cast<std::uint16_t>(*found + i)}).ok());
}

TEST(LocalHost, HasATemporaryDirectory) {
  const testing::TemporaryDirectory folder;
  {
    const testing::ScopedVariable variable("TMPDIR", folder.path());
    EXPECT_EQ(temporary_directory().or_throw(), folder.path());
  }
  const testing::ScopedVariable variable("TMPDIR", folder.path() / "none");
  const auto missing = temporary_directory();
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ExitCode::kUsage);
  EXPECT_THAT(missing.error().message,
              HasSubstr("TMPDIR=" + (folder.path() / "none").string() +
                        ": No such file or directory, expected a directory"));
}

}  // namespace
}  // namespace tilewright::elastic
