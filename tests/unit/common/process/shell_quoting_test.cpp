// The results are those of /bin/sh.
#include "common/process/shell_quoting.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

TEST(ShellQuoting, GivesTheShellTheSameWords) {
  const std::vector<std::string> words = {
      "plain", "",   "two words", "it's",   "$HOME `id` \\ \"x\"", "a;b&c|d>e", "*",
      "~",     "#x", "new\nline", "--f=1,2"};
  const testing::TemporaryDirectory folder;
  std::string line = "printf '<%s>'";
  for (const std::string& word : words) line += " " + shell_quoted(word);
  testing::RunningProgram shell("/bin/sh", {"-c", line}, folder.path());
  std::string expected;
  for (const std::string& word : words) expected += "<" + word + ">";
  EXPECT_EQ(shell.wait(), 0);
  EXPECT_EQ(shell.output(), expected);
  EXPECT_EQ(shell_quoted("--f=/a/b:1"), "--f=/a/b:1");
}

}  // namespace
}  // namespace tilewright
