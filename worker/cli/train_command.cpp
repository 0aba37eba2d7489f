// `tilewright-worker train`: flags and environment to a training.
#include <unistd.h>

#include <charconv>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/contract/environment.h"
#include "common/contract/training_flags.h"
#include "worker/cli/commands.h"
#include "worker/elastic/session.h"
#include "worker/elastic/signals.h"
#include "worker/train/run.h"

namespace tilewright::cli {
namespace {

// A variable that counts processes; 1 where it is not set.
int number(const char* name) {
  const std::string text = environment_variable(name);
  if (text.empty()) return 1;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 65536) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("{}: found {}, expected a number from 1 to 65536", name, text));
  }
  return value;
}

std::string flag_help() {
  std::string text = "Flags, as --name=value:\n";
  for (const TrainingFlag& flag : training_flags()) {
    text += fmt::format("  --{:<30} {} ({}; default {})\n", flag.name, flag.help,
                        describe_expected(flag),
                        flag.default_value.empty() ? "none" : flag.default_value);
  }
  return text;
}

int train(const std::vector<std::string>& flags) {
  const TrainingArguments arguments = TrainingArguments::parse(flags).or_throw();
  const runtime::CpuInfo cpu = runtime::detect_cpu();
  train::RunOptions options;
  options.isa = runtime::choose_isa(cpu, environment_variable(env::kIsa)).or_throw();
  options.cpu_model = cpu.model;
  // Processes of one launcher share its CPUs; a launcher that binds them says LOCAL_WORLD_SIZE=1.
  options.threads =
      std::max(1, std::min(cpu.physical_cores, cpu.usable_cpus) / number(env::kLocalWorldSize));
  options.world_at_start = number(env::kWorldSize);
  options.fault = environment_variable(env::kFault);
  options.terminal = isatty(STDERR_FILENO) != 0;
  const elastic::SessionSettings membership =
      elastic::settings_from_environment(environment_variable);
  options.worker_index = membership.seat.index;
  const std::string metrics_address = environment_variable(env::kMetricsAddress);
  if (!metrics_address.empty() && membership.seat.slot == 0) {
    options.metrics_address = net::parse_address(metrics_address).or_throw();
  }
  options.identity = {environment_variable(env::kJobName), membership.seat.index,
                      membership.seat.slot};
  const auto log = make_logger(membership.coordinator ? to_string(membership.seat) : "worker",
                               arguments.text("log_level"));
  const elastic::StopSignals signals;
  elastic::Session session(membership, std::string(runtime::name(options.isa)), &signals, log);
  train::run_training(arguments, options, session, *log);
  return 0;
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "trains and evaluates");
  command->allow_extras();
  command->footer(flag_help());
  command->callback([command, &exit_code] { exit_code = train(command->remaining()); });
}

}  // namespace tilewright::cli
