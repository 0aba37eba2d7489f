// `tilewright-worker train`: runs a training from flags and environment variables.
#include <unistd.h>

#include <charconv>

#include "common/base/log.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/tasks.h"
#include "common/contract/training_flags.h"
#include "common/contract/unknown_variables.h"
#include "common/process/signals.h"
#include "worker/cli/commands.h"
#include "worker/elastic/launcher.h"
#include "worker/elastic/session.h"
#include "worker/train/run.h"

namespace tilewright::cli {
namespace {

// The value of a variable that counts processes; 1 if it is not set.
int process_count(const char* name) {
  const std::string text = environment_variable(name);
  if (text.empty()) return 1;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 65536) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("{}: found \"{}\", expected an integer from 1 to 65536", name, text));
  }
  return value;
}

std::string flag_help() {
  std::string text = "Flags, as --name=value:\n";
  for (const TrainingFlag& flag : training_flags()) {
    text += fmt::format(
        "  --{:<30} {} ({}; {})\n", flag.name, flag.help, describe_expected(flag),
        flag.required ? "required"
                      : fmt::format("default {}", flag.default_value.empty() ? std::string("empty")
                                                                             : flag.default_value));
  }
  text += "\nTasks:\n";
  for (const TaskDescription& task : task_descriptions()) {
    text += fmt::format("  {:<32} {}\n", task.name, task.summary);
  }
  return text;
}

int train(const std::vector<std::string>& flags) {
  const TrainingArguments arguments = TrainingArguments::parse(flags).or_throw();
  const runtime::CpuInfo cpu = runtime::detect_cpu();
  train::RunOptions options;
  const std::string forced = environment_variable(env::kIsa);
  const runtime::Isa best = runtime::choose_isa(cpu, forced).or_throw();
  options.isas = forced.empty() ? cpu.isas : std::vector{best};
  options.cpu_model = cpu.model;
  // Processes of one launcher share its CPUs. A launcher that binds processes to CPUs sets
  // LOCAL_WORLD_SIZE=1.
  options.threads = std::max(
      1, std::min(cpu.physical_cores, cpu.usable_cpus) / process_count(env::kLocalWorldSize));
  options.default_world_size = process_count(env::kWorldSize);
  options.fault = environment_variable(env::kFault);
  options.terminal = isatty(STDERR_FILENO) != 0;
  elastic::check_launcher(environment_variable);
  const elastic::SessionSettings membership =
      elastic::settings_from_environment(environment_variable);
  options.worker_index = membership.process.worker_index;
  const std::string metrics_address = environment_variable(env::kMetricsAddress);
  if (!metrics_address.empty() && membership.process.local_rank == 0) {
    options.metrics_address = net::parse_address(metrics_address).or_throw();
  }
  options.identity = {environment_variable(env::kJobName), membership.process.worker_index,
                      membership.process.local_rank};
  const auto log = make_logger(arguments.settings().log_level);
  if (membership.process.worker_index == 0 && membership.process.local_rank == 0) {
    for (const std::string& sentence : describe_unknown_variables(environ)) {
      log->warn("{}", sentence);
    }
  }
  const StopSignals signals;
  elastic::Session session(membership, &signals, log);
  train::run_training(arguments, options, session, *log);
  return 0;
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "Train a model and evaluate it");
  command->allow_extras();
  command->footer(flag_help());
  command->callback([command, &exit_code] { exit_code = train(command->remaining()); });
}

}  // namespace tilewright::cli
