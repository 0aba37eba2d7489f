#include "worker/elastic/network_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/contract/environment.h"

namespace tilewright::elastic {
namespace {

using ::testing::HasSubstr;

const std::vector<NetworkInterface> kInterfaces = {
    {"lo", "127.0.0.1", true},      {"docker0", "172.17.0.1", false}, {"eth0", "10.0.0.5", false},
    {"eth0", "2001:db8::5", false}, {"eth1", "10.1.0.5", false},      {"ib0", "10.2.0.5", false}};

std::string chosen(const char* variable, const std::string& value,
                   const std::string& default_address = "10.0.0.5") {
  const auto address = chosen_address({variable, value}, kInterfaces, default_address);
  if (address.ok()) return *address;
  EXPECT_EQ(address.error().code, ExitCode::kUsage);
  return address.error().message;
}

TEST(NetworkInterface, IsThatOfTheRendezvousWithoutAVariable) {
  EXPECT_EQ(chosen("", ""), "10.0.0.5");
}

TEST(NetworkInterface, HasOneOfTheNamesOfGlooSocketIfname) {
  EXPECT_EQ(chosen(env::kGlooSocketIfname, "eth1"), "10.1.0.5");
  EXPECT_EQ(chosen(env::kGlooSocketIfname, "ib1,ib0,eth1"), "10.2.0.5");
  EXPECT_EQ(chosen(env::kGlooSocketIfname, "eth0", "::1"), "2001:db8::5");
  EXPECT_EQ(chosen(env::kGlooSocketIfname, "eth"),
            "GLOO_SOCKET_IFNAME: found \"eth\", which no network interface with an IPv4 address "
            "fits, expected one of docker0, eth0, eth1, ib0, lo");
  EXPECT_THAT(chosen(env::kGlooSocketIfname, "ib0", "::1"),
              HasSubstr("with an IPv6 address fits, expected one of eth0"));
}

TEST(NetworkInterface, HasAPrefixOfNcclSocketIfname) {
  EXPECT_EQ(chosen(env::kNcclSocketIfname, "ib"), "10.2.0.5");
  EXPECT_EQ(chosen(env::kNcclSocketIfname, "=eth1"), "10.1.0.5");
  EXPECT_EQ(chosen(env::kNcclSocketIfname, "^docker,eth0"), "10.1.0.5");
  EXPECT_EQ(chosen(env::kNcclSocketIfname, "^=docker0"), "10.0.0.5");
  EXPECT_THAT(chosen(env::kNcclSocketIfname, "=eth"), HasSubstr("found \"=eth\""));
}

TEST(NetworkInterface, IsChosenByGlooBeforeNccl) {
  const auto both = [](const char* name) {
    return std::string(name) == env::kGlooSocketIfname   ? "a"
           : std::string(name) == env::kNcclSocketIfname ? "b"
                                                         : "";
  };
  EXPECT_EQ(interface_choice(both).value, "a");
  const auto nccl = [](const char* name) {
    return std::string(name) == env::kNcclSocketIfname ? "b" : "";
  };
  EXPECT_EQ(interface_choice(nccl).variable, env::kNcclSocketIfname);
  EXPECT_EQ(interface_choice([](const char*) { return std::string(); }).variable, "");
}

TEST(NetworkInterface, OfThisMachineHasTheLoopbackAddress) {
  const auto address =
      chosen_address({env::kGlooSocketIfname, "lo"}, network_interfaces(), "10.0.0.5");
  ASSERT_TRUE(address.ok()) << address.error().message;
  EXPECT_EQ(*address, "127.0.0.1");
}

}  // namespace
}  // namespace tilewright::elastic
