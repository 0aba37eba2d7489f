// Tests of TILEWRIGHT_FAULT: valid values, and errors for invalid ones.
#include "controller/operator/write_fault.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tilewright::controller {
namespace {

using ::testing::HasSubstr;

kube::ApiRequest write_to(const std::string& resource) {
  kube::ApiRequest request;
  request.resource = resource;
  return request;
}

TEST(WriteFault, IsDisabledByDefault) {
  kube::SenderOptions options;
  ASSERT_TRUE(install_write_fault("", options));
  EXPECT_FALSE(options.before_write);
  EXPECT_FALSE(options.after_write);
}

TEST(WriteFault, RejectsInvalidValues) {
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

TEST(WriteFaultDeathTest, KillsAtTheNumberedWriteWithoutCountingLeases) {
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

TEST(WriteFault, StopsAtTheNumberedWriteUntilSigcont) {
  kube::SenderOptions options;
  ASSERT_TRUE(install_write_fault("pause_at_write@1", options));
  ASSERT_TRUE(options.before_write && !options.after_write);
  const pid_t writer = fork();
  if (writer == 0) {
    options.before_write(write_to("pods"));
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(writer, &status, WUNTRACED), writer);
  EXPECT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
  ASSERT_EQ(kill(writer, SIGCONT), 0);
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace tilewright::controller
