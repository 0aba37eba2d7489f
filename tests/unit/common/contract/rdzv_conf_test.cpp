#include "common/contract/rdzv_conf.h"

#include <gtest/gtest.h>

#include <string>

namespace tilewright {
namespace {

std::string refusal(std::string_view text) {
  RdzvConf conf;
  const Status status = parse_rdzv_conf(conf, text);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ExitCode::kUsage);
  return status.error().message;
}

TEST(RdzvConf, ParsesTorchrunSyntax) {
  RdzvConf conf;
  EXPECT_TRUE(parse_rdzv_conf(conf, "").ok());
  EXPECT_FALSE(conf.tls);
  EXPECT_TRUE(parse_rdzv_conf(conf, "tls=true").ok());
  EXPECT_TRUE(conf.tls);
  EXPECT_TRUE(parse_rdzv_conf(conf, "tls=true,tls=false").ok());
  EXPECT_FALSE(conf.tls);
}

// The defaults are those of torch/distributed/elastic/rendezvous/dynamic_rendezvous.py.
TEST(RdzvConf, TheHeartbeatTimeoutIsTorchrunsProduct) {
  const auto timeout = [](std::string_view text) {
    RdzvConf conf;
    EXPECT_TRUE(parse_rdzv_conf(conf, text).ok()) << text;
    return conf.heartbeat_timeout();
  };
  EXPECT_EQ(timeout("tls=true"), std::nullopt);
  EXPECT_EQ(timeout("keep_alive_interval=2"), std::chrono::seconds(6));
  EXPECT_EQ(timeout("keep_alive_max_attempt=4"), std::chrono::seconds(20));
  EXPECT_EQ(timeout("keep_alive_max_attempt=7,keep_alive_interval=0.5"),
            std::chrono::milliseconds(3500));
}

TEST(RdzvConf, TheHeartbeatTimeoutIsAtLeastThreeHeartbeats) {
  RdzvConf conf{.keep_alive_interval = 1, .keep_alive_max_attempt = 3};
  EXPECT_TRUE(check(conf).ok());
  conf.keep_alive_max_attempt = 2;
  EXPECT_EQ(check(conf).error().message,
            "found 2 s for keep_alive_interval x keep_alive_max_attempt, expected at least 3 s, "
            "because workers send a heartbeat every second");
  EXPECT_EQ(check(conf).error().code, ExitCode::kUsage);
}

TEST(RdzvConf, RejectsUnknownKeysAndValues) {
  const std::string keys = "expected tls, keep_alive_interval or keep_alive_max_attempt";
  EXPECT_EQ(refusal("tsl=true"), "found the key \"tsl\", " + keys + "; did you mean tls?");
  EXPECT_EQ(refusal("timeout=30"), "found the key \"timeout\", " + keys);
  for (const char* bad : {"0", "-1", "five", "", "inf", "3001"}) {
    EXPECT_EQ(refusal(std::string("keep_alive_interval=") + bad),
              std::string("found \"") + bad +
                  "\" for keep_alive_interval, expected a number above 0 and up to 3000");
  }
  EXPECT_EQ(refusal("tls=yes"), "found \"yes\" for tls, expected true or false");
  EXPECT_EQ(refusal("tls"), "found \"tls\", expected key=value,...");
  EXPECT_EQ(refusal("tls=true,=x"), "found the key \"\", " + keys);
}

}  // namespace
}  // namespace tilewright
