#include "common/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/base/exit_codes.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/contract/nearest.h"

namespace tilewright {
namespace {

bool is_flag(const std::string& argument) {
  return argument.size() > 1 && argument.starts_with('-');
}

// The flag without its value: "--name=3" is "--name".
std::string unknown_flag(const std::string& argument, const CLI::App& command) {
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  return fmt::format("{}: unknown flag{}", excerpt(flag),
                     did_you_mean(flag, {known.begin(), known.end()}));
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App* each) {
         return !each->get_group().empty();  // an empty group hides the command from --help
       })) {
    names.push_back(sub->get_name());
  }
  return names;
}

// For a word too many, if `command` takes one option, which is not given, and no plain arguments: a
// second file must not be advised as the output.
std::string only_option(const std::string& word, const CLI::App& command) {
  const auto options = command.get_options(
      [](const CLI::Option* option) { return option->get_items_expected_max() > 0; });
  if (options.size() != 1 || options.front()->get_positional() || options.front()->count() > 0) {
    return "";
  }
  return fmt::format("; did you mean --{} {}?", options.front()->get_lnames().front(),
                     excerpt(word));
}

bool lacks_command(const CLI::App& command) {
  return command.get_require_subcommand_min() > 0 && command.get_subcommands().empty();
}

std::vector<std::string> remaining_words(const CLI::App& command) {
  if (command.get_allow_extras()) return {};
  std::vector<std::string> left = command.remaining();
  std::erase(left, "--");
  return left;
}

// The first argument that `command` does not know, as an error message; empty: none.
std::string unknown_argument(const CLI::App& command) {
  const std::vector<std::string> left = remaining_words(command);
  if (lacks_command(command) && !left.empty() && !is_flag(left.front())) {
    const std::vector<std::string> names = command_names(command);
    return fmt::format("{}: unknown command{}", excerpt(left.front()),
                       did_you_mean(left.front(), {names.begin(), names.end()}));
  }
  const auto flag = std::ranges::find_if(left, is_flag);
  return flag == left.end() ? "" : unknown_flag(*flag, command);
}

}  // namespace

std::string describe_unknown_argument(const CLI::App& app) {
  // The innermost command first: its unknown flag precedes the rest of the line, which CLI11
  // returns to the outer commands.
  std::vector<const CLI::App*> commands = {&app};
  std::vector<std::string> names = {app.get_name()};
  while (!commands.back()->get_subcommands().empty()) {
    commands.push_back(commands.back()->get_subcommands().front());
    names.push_back(names.back() + " " + commands.back()->get_name());
  }
  for (std::size_t i = commands.size(); i-- > 0;) {
    const std::string found = unknown_argument(*commands[i]);
    if (!found.empty()) return fmt::format("{}: {}", names[i], found);
  }
  if (lacks_command(*commands.back())) {
    return fmt::format("{}: found no command, expected one of {}", names.back(),
                       fmt::join(command_names(*commands.back()), ", "));
  }
  for (const CLI::App* command : commands) {
    const std::vector<std::string> left = remaining_words(*command);
    if (left.empty()) continue;
    return fmt::format("{}: found the argument {}, expected no further one{}", names.back(),
                       quoted_excerpt(left.front()), only_option(left.front(), *commands.back()));
  }
  return "";
}

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool help_or_version = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    const std::string unknown = help_or_version ? "" : describe_unknown_argument(app);
    if (unknown.empty()) {
      app.exit(error);
    } else {
      fmt::print(stderr, "{}\nRun with --help for more information.\n", unknown);
    }
    return static_cast<int>(help_or_version ? ExitCode::kOk : ExitCode::kUsage);
  }
  return std::nullopt;
}

int finish_output(std::string_view program, int exit_code) {
  const auto flush = [] { return std::fflush(stdout) == 0 ? 0 : errno; };
  int error = flush();
  if (error == 0 && std::ferror(stdout) != 0) {
    // The errno of the earlier write is lost. The output is incomplete, so that one more byte,
    // which most likely fails for the same reason, does no harm.
    std::fputc('\n', stdout);
    error = flush();
    if (error == 0) error = EIO;
  }
  const bool lost = error != 0 && error != EPIPE;
  if (!lost || exit_code != static_cast<int>(ExitCode::kOk)) return exit_code;
  fmt::print(stderr, "{}: standard output: cannot write: {}\n", program, std::strerror(error));
  return static_cast<int>(output_error_code(error));
}

}  // namespace tilewright
