#include "common/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/exit_codes.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A program with the kinds of commands that the programs have.
struct Program {
  Program() {
    app.require_subcommand(1);
    CLI::App* agent = app.add_subcommand("agent", "Positional words, also after --");
    agent->add_option("--nproc_per_node", number);
    agent->add_option("command", words)->required();
    agent->callback([this] { ran = true; });
    CLI::App* bench = app.add_subcommand("bench", "A command with commands");
    bench->require_subcommand(1);
    CLI::App* step = bench->add_subcommand("step", "Flags only");
    step->add_option("--seq", number);
    step->callback([this] { ran = true; });
    CLI::App* train = app.add_subcommand("train", "Parses its own flags");
    train->allow_extras();
    train->callback([this] { ran = true; });
    CLI::App* hidden = app.add_subcommand("hidden", "For developers");
    hidden->group("");
    hidden->add_option("file", file);
    hidden->add_option("--output", output);
  }
  // What is printed on standard error; the exit code must be that of a usage error.
  std::string error_of(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    ::testing::internal::CaptureStderr();
    const std::optional<int> code =
        parse_command_line(app, static_cast<int>(arguments.size()), arguments.data());
    std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, static_cast<int>(ExitCode::kUsage)) << text;
    EXPECT_FALSE(ran);
    return text;
  }
  std::optional<int> run(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    ::testing::internal::CaptureStdout();
    const auto code = parse_command_line(app, static_cast<int>(arguments.size()), arguments.data());
    ::testing::internal::GetCapturedStdout();
    return code;
  }

  CLI::App app{"A program", "program"};
  int number = 0;
  std::vector<std::string> words;
  std::string file, output;
  bool ran = false;
};

TEST(CommandLine, NamesAnUnknownFlagAndNotTheWordsAfterIt) {
  for (const std::vector<const char*>& rest :
       {std::vector<const char*>{"2", "--", "train", "--task_name=mrpc"},
        {"2", "train"},
        {"--", "train"},
        {}}) {
    std::vector<const char*> arguments = {"agent", "--nproc_per_nod"};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    EXPECT_THAT(Program().error_of(arguments),
                StartsWith("program agent: --nproc_per_nod: unknown flag; did you mean "
                           "--nproc_per_node?\n"));
  }
  EXPECT_THAT(Program().error_of({"bench", "step", "--sep", "3"}),
              StartsWith("program bench step: --sep: unknown flag; did you mean --seq?\n"));
}

TEST(CommandLine, NamesTheFlagWithoutItsValue) {
  EXPECT_THAT(Program().error_of({"bench", "step", "--entirely-different=3"}),
              StartsWith("program bench step: --entirely-different: unknown flag\n"));
  EXPECT_THAT(Program().error_of({"--verison", "bench", "step"}),
              StartsWith("program: --verison: unknown flag\n"));
}

TEST(CommandLine, NamesAnUnknownCommand) {
  EXPECT_THAT(Program().error_of({"trian", "--epochs=3"}),
              StartsWith("program: trian: unknown command; did you mean train?\n"));
  EXPECT_THAT(Program().error_of({"bench", "stepp"}),
              StartsWith("program bench: stepp: unknown command; did you mean step?\n"));
  EXPECT_THAT(Program().error_of({"hiden"}), StartsWith("program: hiden: unknown command\n"));
}

TEST(CommandLine, ListsTheCommandsIfThereIsNone) {
  EXPECT_THAT(Program().error_of({}),
              StartsWith("program: found no command, expected one of agent, bench, train\n"));
  EXPECT_THAT(Program().error_of({"bench"}),
              StartsWith("program bench: found no command, expected one of step\n"));
}

TEST(CommandLine, NamesTheCommandAndTheArgumentThatItDoesNotTake) {
  EXPECT_THAT(
      Program().error_of({"bench", "step", "--seq", "3", "x", "y"}),
      StartsWith("program bench step: found the argument \"x\", expected no further one\n"));
  EXPECT_THAT(Program().error_of({"bench", "step", "x"}),
              StartsWith("program bench step: found the argument \"x\", expected no further one; "
                         "did you mean --seq x?\n"));
  EXPECT_THAT(
      Program().error_of({"hidden", "a.yaml", "b.yaml"}),
      StartsWith("program hidden: found the argument \"b.yaml\", expected no further one\n"));
}

TEST(CommandLine, ReportsOtherErrorsAsBefore) {
  EXPECT_THAT(Program().error_of({"agent"}), HasSubstr("command is required"));
  EXPECT_THAT(Program().error_of({"bench", "step", "--seq", "many"}), HasSubstr("--seq"));
}

TEST(CommandLine, LeavesTheFlagsOfACommandThatParsesThemItself) {
  Program program;
  EXPECT_EQ(program.run({"train", "--task_name=mrpc", "--unknown"}), std::nullopt);
  EXPECT_TRUE(program.ran);
}

TEST(CommandLine, RunsTheCommandOrPrintsHelp) {
  Program program;
  EXPECT_EQ(program.run({"agent", "--nproc_per_node", "2", "--", "train", "--x"}), std::nullopt);
  EXPECT_TRUE(program.ran);
  EXPECT_EQ(program.words, (std::vector<std::string>{"train", "--x"}));
  EXPECT_EQ(Program().run({"agent", "--help"}), static_cast<int>(ExitCode::kOk));
}

}  // namespace
}  // namespace tilewright
