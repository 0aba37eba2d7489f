// The commands of tilewright-worker. Each turns a Failure into one line on standard error and
// its exit code.
#pragma once

#include <CLI/CLI.hpp>

#include "common/base/result.h"

namespace tilewright::cli {

// A program that is called torchrun, python, python3, bash or sh interprets its arguments as these
// do, see launch_command.h.
int run_worker(int argc, char** argv);

// Writes the message to standard error.
void report_failure(const Failure& failure);

// The following functions add a subcommand whose callback sets exit_code.

// train, eval and predict.
void add_train_commands(CLI::App& app, int& exit_code);
// Only for the list of commands: run_agent_command() parses the flags, which are torchrun's.
void add_agent_command(CLI::App& app);
// `words`: the command line after `agent`. Returns the exit code; throws Failure.
int run_agent_command(std::vector<std::string> words);
void add_bench_command(CLI::App& app, int& exit_code);
// `bench start`, which has the flags of train.
void add_start_bench(CLI::App& bench, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);

}  // namespace tilewright::cli
