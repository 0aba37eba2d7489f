#include "common/base/build_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/paths.h"

namespace tilewright {
namespace {

using namespace std::string_literals;

TEST(BuildId, IsThatInTheProgramsFile) {
  const std::string id = build_id();
  ASSERT_EQ(id.size(), 40U);
  std::string note = "\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"s;  // sizes 4 and 20, type 3
  for (std::size_t i = 0; i < id.size(); i += 2) {
    note += static_cast<char>(std::stoi(id.substr(i, 2), nullptr, 16));
  }
  EXPECT_THAT(testing::read_text("/proc/self/exe"), ::testing::HasSubstr(note));
}

}  // namespace
}  // namespace tilewright
