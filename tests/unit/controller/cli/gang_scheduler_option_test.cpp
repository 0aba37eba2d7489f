#include "controller/cli/gang_scheduler_option.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

std::string parsed(const std::string& argument) {
  CLI::App app;
  std::string gang_scheduler;
  add_gang_scheduler_option(app, gang_scheduler);
  app.parse(argument);
  return gang_scheduler;
}

// The values of Kubeflow's operator, whose flag is spelt with hyphens.
TEST(GangSchedulerOption, TakesTheValuesOfKubeflowsOperator) {
  EXPECT_EQ(parsed(""), "");
  EXPECT_EQ(parsed("--gang_scheduler_name=volcano"), "volcano");
  EXPECT_EQ(parsed("--gang-scheduler-name=Volcano"), "volcano");
  EXPECT_EQ(parsed("--gang-scheduler-name None"), "");
  EXPECT_EQ(parsed("--gang_scheduler_name=my-Scheduler"), "my-Scheduler");
}

}  // namespace
}  // namespace tilewright
