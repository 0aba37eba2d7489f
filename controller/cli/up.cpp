#include "controller/cli/up.h"

#include <memory>

#include "controller/local/run.h"

namespace tilewright {

void add_up_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<local::RunOptions>();
  CLI::App* up = app.add_subcommand(
      "up", "Runs a TrainJob on this machine, with worker processes in place of pods");
  up->add_option("FILE", options->manifest, "The manifest")->required();
  up->add_option("--state_dir", options->state_dir,
                 "Where jobs are kept: a folder each, with status and logs")
      ->capture_default_str();
  up->add_option("--worker_binary", options->worker_binary,
                 "The program to run as worker; by default tilewright-worker beside this program, "
                 "else in PATH");
  up->add_option("--name", options->name,
                 "In place of metadata.name; names the job to resume where that was generated");
  up->add_flag("--replace", options->replace,
               "Begin anew if a job of that name is there, ended or not");
  up->add_option("--log_level", options->log_level, "How much of our own doings to tell")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  up->callback([options, &exit_code] { exit_code = local::run_up(*options); });
}

}  // namespace tilewright
