// `tilewright-worker train`: flags and environment to a training.
#include <unistd.h>

#include <cstdlib>

#include "common/base/log.h"
#include "common/contract/environment.h"
#include "common/contract/training_flags.h"
#include "worker/cli/commands.h"
#include "worker/train/run.h"

namespace tilewright::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

class Alone final : public train::Membership {
 public:
  std::unique_ptr<collectives::Mesh> join(std::int64_t) override {
    return collectives::Mesh::alone();
  }
  void report(const rendezvous::Progress&) override {}
  bool should_leave() override { return false; }
  std::optional<ExitCode> stopped() override { return std::nullopt; }
  void finish() override {}
};

int train(const std::vector<std::string>& flags) {
  const TrainingArguments arguments = TrainingArguments::parse(flags).or_throw();
  const runtime::CpuInfo cpu = runtime::detect_cpu();
  train::RunOptions options;
  options.isa = runtime::choose_isa(cpu, environment(env::kIsa)).or_throw();
  options.cpu_model = cpu.model;
  options.threads = std::min(cpu.physical_cores, cpu.usable_cpus);
  options.fault = environment(env::kFault);
  options.terminal = isatty(STDERR_FILENO) != 0;
  options.job_uid = environment(env::kJobUid);
  const auto log = make_logger("worker", arguments.text("log_level"));
  Alone alone;
  train::run_training(arguments, options, alone, *log);
  return 0;
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "trains and evaluates");
  command->allow_extras();
  command->callback([command, &exit_code] { exit_code = train(command->remaining()); });
}

}  // namespace tilewright::cli
