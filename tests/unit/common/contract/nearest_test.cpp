#include "common/contract/nearest.h"

#include <gtest/gtest.h>

#include <string>

namespace tilewright {
namespace {

const std::vector<std::string_view> kNames = {"replicas", "resources", "restartPolicy", "image",
                                              "per_device_train_batch_size"};

TEST(NearestName, CorrectsTypingErrors) {
  EXPECT_EQ(nearest_name("replica", kNames), "replicas");
  EXPECT_EQ(nearest_name("relpicas", kNames), "replicas");
  EXPECT_EQ(nearest_name("resorces", kNames), "resources");
  EXPECT_EQ(nearest_name("imgae", kNames), "image");
}

TEST(NearestName, IgnoresCaseAndSeparators) {
  EXPECT_EQ(nearest_name("restart_policy", kNames), "restartPolicy");
  EXPECT_EQ(nearest_name("perDeviceTrainBatchSize", kNames), "per_device_train_batch_size");
  EXPECT_EQ(nearest_name("per-device-train-batch-size", kNames), "per_device_train_batch_size");
}

TEST(NearestName, ReturnsEmptyWithoutACloseMatch) {
  EXPECT_EQ(nearest_name("tolerations", kNames), "");
  EXPECT_EQ(nearest_name("x", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'r'), kNames), "");
  const std::string long_candidate(1 << 20, 'r');
  EXPECT_EQ(nearest_name("replica", {long_candidate, "replicas"}), "replicas");
  EXPECT_EQ(nearest_name(std::string(90, 'r'), {long_candidate}), "");
  EXPECT_EQ(nearest_name("replicas", {}), "");
}

}  // namespace
}  // namespace tilewright
