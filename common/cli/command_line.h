// Parses a program's command line with CLI11 and reports errors in one way for both programs.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace tilewright {

// Parses the command line, which runs the callback of its command. nullopt: it ran. Otherwise the
// exit code of the program: kOk after --help or --version, kUsage after an error, which is printed
// on standard error. Exceptions of the callback pass through.
std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv);

// After a failed parse: "PROGRAM COMMAND: --flag: unknown flag; did you mean --other?", or the same
// for an unknown command; empty if the error is another one.
std::string describe_unknown_argument(const CLI::App& app);

}  // namespace tilewright
