#include "common/contract/rdzv_conf.h"

#include <gtest/gtest.h>

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

TEST(RdzvConf, RejectsUnknownKeysAndValues) {
  EXPECT_EQ(refusal("tsl=true"), "found the key \"tsl\", expected tls; did you mean tls?");
  EXPECT_EQ(refusal("timeout=30"), "found the key \"timeout\", expected tls");
  EXPECT_EQ(refusal("tls=yes"), "found \"yes\" for tls, expected true or false");
  EXPECT_EQ(refusal("tls"), "found \"tls\", expected key=value,...");
  EXPECT_EQ(refusal("tls=true,=x"), "found the key \"\", expected tls");
}

}  // namespace
}  // namespace tilewright
