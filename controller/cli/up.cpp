#include "controller/cli/up.h"

#include <memory>

#include "controller/local/run.h"

namespace tilewright {

void add_up_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<local::RunOptions>();
  CLI::App* up = app.add_subcommand(
      "up", "Run a TrainJob on this machine: one process per worker, no cluster");
  up->add_option("FILE", options->manifest, "Manifest of the TrainJob, YAML or JSON")->required();
  up->add_option("--state_dir", options->state_dir,
                 "Directory of the jobs' state: one subdirectory per job, with status and logs")
      ->capture_default_str();
  up->add_option("--worker_binary", options->worker_binary,
                 "Worker program (default: tilewright-worker in the directory of this program, "
                 "then in PATH)");
  up->add_option(
      "--name", options->name,
      "Name of the job in place of metadata.name, for example to resume a job with a generated "
      "name");
  up->add_flag("--replace", options->replace,
               "Discard an existing job of the same name, start again and overwrite its output");
  up->add_flag("--verbose", options->verbose,
               "Print every line that the workers write, not only the summary");
  up->add_option("--log_level", options->log_level,
                 "Lowest level of messages that the rendezvous server logs")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  up->footer(
      "The workers share all CPUs of this machine; spec.worker.resources has no effect. Ctrl-C "
      "suspends the job, and `tilewright up` with its name resumes it.");
  up->callback([options, &exit_code] { exit_code = local::run_up(*options); });
}

}  // namespace tilewright
