// The commands of tilewright-worker. Each turns a Failure into one sentence on standard error and
// its exit code.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewright::cli {

int run_worker(int argc, char** argv);

// Each adds a subcommand whose callback sets exit_code.
// train, eval and predict.
void add_train_commands(CLI::App& app, int& exit_code);
void add_agent_command(CLI::App& app, int& exit_code);
void add_bench_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);

}  // namespace tilewright::cli
