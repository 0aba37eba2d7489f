#include "worker/elastic/launcher.h"

#include <gmock/gmock.h>

#include <map>

namespace tilewright::elastic {
namespace {

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

TEST(Launcher, RejectsSeveralProcessesWithoutARendezvous) {
  for (const char* variable :
       {"WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    try {
      check_launcher(environment_of({{variable, "4"}}));
      ADD_FAILURE() << variable;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kUsage);
      EXPECT_THAT(failure.what(), ::testing::HasSubstr(std::string(variable) + "=4 without"));
    }
  }
}

TEST(Launcher, AcceptsOneProcess) {
  check_launcher(environment_of({}));
  check_launcher(environment_of({{"WORLD_SIZE", "1"}, {"PMI_SIZE", "1"}}));
  check_launcher(environment_of({{"WORLD_SIZE", "unset"}}));
}

TEST(Launcher, AcceptsSeveralProcessesWithARendezvous) {
  check_launcher(environment_of({{"WORLD_SIZE", "4"}, {"TILEWRIGHT_RENDEZVOUS", "node0:29400"}}));
}

}  // namespace
}  // namespace tilewright::elastic
