#include "common/contract/rdzv_conf.h"

#include <gtest/gtest.h>

#include <string>

namespace tilewright {
namespace {

std::string refusal(std::string_view key, std::string_view value) {
  RdzvConf conf;
  const Status status = set_rdzv_conf(conf, key, value);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ExitCode::kUsage);
  return status.error().message;
}

TEST(RdzvConf, SetsTls) {
  RdzvConf conf;
  EXPECT_FALSE(conf.tls);
  EXPECT_TRUE(set_rdzv_conf(conf, "tls", "true").ok());
  EXPECT_TRUE(conf.tls);
  EXPECT_TRUE(set_rdzv_conf(conf, "tls", "false").ok());
  EXPECT_FALSE(conf.tls);
}

// The defaults are those of torch/distributed/elastic/rendezvous/dynamic_rendezvous.py.
TEST(RdzvConf, TheHeartbeatTimeoutIsTorchrunsProduct) {
  RdzvConf conf{.tls = true};
  EXPECT_EQ(conf.heartbeat_timeout(), std::nullopt);
  conf = {.keep_alive_max_attempt = 4};
  EXPECT_EQ(conf.heartbeat_timeout(), std::chrono::seconds(20));
  EXPECT_TRUE(set_rdzv_conf(conf, "keep_alive_interval", "0.75").ok());
  EXPECT_EQ(conf.heartbeat_timeout(), std::chrono::seconds(3));
  conf = {.keep_alive_interval = 2};
  EXPECT_EQ(conf.heartbeat_timeout(), std::chrono::seconds(6));
}

TEST(RdzvConf, TheHeartbeatTimeoutIsAtLeastThreeHeartbeatsAndAtMostADay) {
  RdzvConf conf{.keep_alive_interval = 1, .keep_alive_max_attempt = 3};
  EXPECT_TRUE(check(conf).ok());
  conf.keep_alive_max_attempt = 2;
  EXPECT_EQ(check(conf).error().message,
            "found 2 s for keep_alive_interval x keep_alive_max_attempt, expected at least 3 s, "
            "because workers send a heartbeat every second");
  EXPECT_EQ(check(conf).error().code, ExitCode::kUsage);
  conf = {.keep_alive_interval = 86400, .keep_alive_max_attempt = 1};
  EXPECT_TRUE(check(conf).ok());
  conf.keep_alive_max_attempt = 86400;
  EXPECT_EQ(check(conf).error().message,
            "found 7464960000 s for keep_alive_interval x keep_alive_max_attempt, expected at most "
            "86400 s");
}

TEST(RdzvConf, RejectsUnknownKeysAndValues) {
  const std::string keys = "expected tls, keep_alive_interval or keep_alive_max_attempt";
  EXPECT_EQ(refusal("tsl", "true"), "found the key \"tsl\", " + keys + "; did you mean tls?");
  EXPECT_EQ(refusal("timeout", "30"), "found the key \"timeout\", " + keys);
  EXPECT_EQ(refusal("", "x"), "found the key \"\", " + keys);
  EXPECT_EQ(refusal("tls", "yes"), "found \"yes\" for tls, expected true or false");
  for (const char* bad : {"0", "-1", "five", "", "inf", "86401"}) {
    EXPECT_EQ(refusal("keep_alive_interval", bad),
              std::string("found \"") + bad +
                  "\" for keep_alive_interval, expected a number above 0 and up to 86400");
  }
}

}  // namespace
}  // namespace tilewright
