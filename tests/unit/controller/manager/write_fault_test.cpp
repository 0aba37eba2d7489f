// What TILEWRIGHT_FAULT may say, and that a mistake in it is no silent nothing.
#include "controller/manager/write_fault.h"

#include <gmock/gmock.h>

namespace tilewright::manager {
namespace {

using ::testing::HasSubstr;

kube::ApiRequest write_to(const std::string& resource) {
  kube::ApiRequest request;
  request.resource = resource;
  return request;
}

TEST(WriteFault, DoesNothingUnasked) {
  kube::SenderOptions options;
  ASSERT_TRUE(install_write_fault("", options));
  EXPECT_FALSE(options.before_write);
  EXPECT_FALSE(options.after_write);
}

TEST(WriteFault, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"before_write", "before_write@", "before_write@0", "before_write@-1",
                           "before_write@1x", "before_write@1@2", "after@1", "@1", "after_write@ 1",
                           "before_write@99999999999999999999"}) {
    kube::SenderOptions options;
    const Status set = install_write_fault(text, options);
    ASSERT_FALSE(set) << text;
    EXPECT_EQ(set.error().code, ExitCode::kUsage);
    EXPECT_THAT(set.error().message, HasSubstr(text));
    EXPECT_FALSE(options.before_write || options.after_write) << text;
  }
}

TEST(WriteFaultDeathTest, KillsAtTheNumberedWriteAndCountsNoLease) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const bool before : {true, false}) {
    kube::SenderOptions options;
    ASSERT_TRUE(install_write_fault(before ? "before_write@2" : "after_write@2", options));
    const auto& hook = before ? options.before_write : options.after_write;
    ASSERT_TRUE(hook);
    ASSERT_FALSE(before ? options.after_write : options.before_write);
    hook(write_to("pods"));
    for (int i = 0; i < 5; ++i) hook(write_to("leases"));
    EXPECT_EXIT(hook(write_to("trainjobs/status")), ::testing::KilledBySignal(SIGKILL), "");
  }
}

}  // namespace
}  // namespace tilewright::manager
