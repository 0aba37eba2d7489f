#include "common/net/address.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tilewright::net {
namespace {

TEST(Address, ParsesNamesIpv4AndIpv6) {
  EXPECT_EQ(parse_address("10.0.0.1:29500").value(), (Address{"10.0.0.1", 29500}));
  EXPECT_EQ(parse_address("node-3.example:1").value(), (Address{"node-3.example", 1}));
  EXPECT_EQ(parse_address("[fd00::1]:65535").value(), (Address{"fd00::1", 65535}));
  EXPECT_EQ(parse_address(":0").value(), (Address{"", 0}));
}

TEST(Address, RoundTrips) {
  for (const char* text : {"10.0.0.1:29500", "[fd00::1]:65535", ":0", "[::]:80"}) {
    EXPECT_EQ(to_string(parse_address(text).value()), text);
  }
}

TEST(Address, SourceNetworksGroupTheAddressesOfOneHost) {
  EXPECT_EQ(source_network("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(source_network("fd00:1:2:3:4:5:6:7"), "fd00:1:2:3::/64");
  EXPECT_EQ(source_network("fd00:1:2:3::9"), "fd00:1:2:3::/64");
  EXPECT_NE(source_network("fd00:1:2:4::9"), source_network("fd00:1:2:3::9"));
  EXPECT_EQ(source_network("fe80::1%eth0"), "fe80::/64");
  EXPECT_EQ(source_network("a disconnected peer"), "a disconnected peer");
}

TEST(Address, RejectsMalformedInputAndQuotesIt) {
  for (const char* text :
       {"", "host", "host:", "host:65536", "host:-1", "host:+1", "host: 1", "host:1x", "fd00::1:80",
        "[fd00::1]", "[fd00::1]80", "[fd00::1:80", "[host]:80", "ho st:80", "host:80\n"}) {
    const auto address = parse_address(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.error().code, ExitCode::kUsage);
    EXPECT_NE(address.error().message.find(fmt::format("\"{}\"", text)), std::string::npos);
  }
}

}  // namespace
}  // namespace tilewright::net
