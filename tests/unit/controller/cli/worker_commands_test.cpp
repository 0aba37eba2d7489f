#include "controller/cli/worker_commands.h"

#include <gtest/gtest.h>

#include "common/base/exit_codes.h"
#include "controller/cli/crd.h"

namespace tilewright {
namespace {

TEST(WorkerCommands, NameTheProgramThatHasThem) {
  CLI::App app("", "tilewright");
  int exit_code = 0;
  add_worker_commands(app, exit_code);
  ::testing::internal::CaptureStderr();
  app.parse("doctor --help");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "tilewright: doctor: a command of tilewright-worker; run tilewright-worker doctor\n");
  EXPECT_EQ(exit_code, static_cast<int>(ExitCode::kUsage));
}

TEST(Crd, TakesTheKindInAnyCase) {
  CLI::App app("", "tilewright");
  add_crd_command(app);
  ::testing::internal::CaptureStdout();
  app.parse("crd --kind pytorchjob");
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("\n  name: pytorchjobs.kubeflow.org\n"),
            std::string::npos);
}

}  // namespace
}  // namespace tilewright
