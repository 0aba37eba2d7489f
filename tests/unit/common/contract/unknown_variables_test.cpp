#include "common/contract/unknown_variables.h"

#include <gmock/gmock.h>

namespace tilewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(UnknownVariables, SuggestsTheNearestName) {
  const char* environment[] = {"PATH=/bin", "TILEWRIGHT_ISSA=avx2", "TILEWRIGHT_ISA=avx2",
                               "TILEWRIGHT_SOMETHING_ELSE=1", nullptr};
  EXPECT_THAT(describe_unknown_variables(environment),
              ElementsAre("TILEWRIGHT_ISSA: unknown environment variable; did you mean "
                          "TILEWRIGHT_ISA?",
                          "TILEWRIGHT_SOMETHING_ELSE: unknown environment variable"));
}

TEST(UnknownVariables, IgnoresTheVariablesOfAService) {
  const char* environment[] = {"TILEWRIGHT_CONTROLLER_PORT_8080_TCP_ADDR=10.0.0.7",
                               "TILEWRIGHT_CONTROLLER_SERVICE_HOST=10.0.0.7",
                               "TILEWRIGHT_CONTROLLER_SERVICE_PORT=8080",
                               "TILEWRIGHT_CONTROLLER_PORT=tcp://10.0.0.7:8080",
                               "TILEWRIGHTER=1",
                               nullptr};
  EXPECT_THAT(describe_unknown_variables(environment), IsEmpty());
}

}  // namespace
}  // namespace tilewright
