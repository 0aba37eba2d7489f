// Parses a program's command line with CLI11 and reports errors in one way for both programs.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright {

// Parses the command line, which runs the callback of its command. nullopt: it ran. Otherwise the
// exit code of the program: kOk after --help or --version, kUsage after an error, which is printed
// on standard error. Exceptions of the callback pass through.
std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv);

// Writes what standard output still buffers, at the end of a program. Returns `exit_code`, or, if
// output of a successful program is lost, output_error_code() after a message on standard error. A
// closed pipe is no error: no reader wants the rest.
int finish_output(std::string_view program, int exit_code);

// After a failed parse: "PROGRAM COMMAND: --flag: unknown flag; did you mean --other?", or the same
// for an unknown or missing command or an argument too many; empty if the error is another one.
std::string describe_unknown_argument(const CLI::App& app);

}  // namespace tilewright
