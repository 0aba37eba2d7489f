// `tilewright-worker agent`: starts the worker processes of one host, like torchrun.
#include <unistd.h>

#include <climits>
#include <memory>

#include "common/base/log.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "worker/cli/commands.h"
#include "worker/elastic/agent.h"

namespace tilewright::cli {
namespace {

std::string executable_path() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) throw Failure(ExitCode::kInternal, "cannot read /proc/self/exe");
  return {path, static_cast<std::size_t>(size)};
}

struct Flags {
  elastic::AgentOptions options;
  std::string nnodes = "1";
  std::string endpoint;
  std::string key_file;
  std::string rdzv_conf;
  std::string log_level = "info";
};

int run(Flags flags, const std::vector<std::string>& command) {
  elastic::AgentOptions& options = flags.options;
  elastic::set_nnodes(options, flags.nnodes);
  if (!flags.endpoint.empty()) {
    options.rdzv_endpoint = net::parse_address(flags.endpoint).or_throw();
  }
  options.rdzv_key_file = flags.key_file;
  elastic::set_rdzv_conf(options, flags.rdzv_conf);
  options.command = command;
  options.command.insert(options.command.begin(), executable_path());
  elastic::complete_options(options, environment_variable);
  const StopSignals signals;
  return elastic::run_agent(options, signals, make_logger(flags.log_level));
}

}  // namespace

void add_agent_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* agent = app.add_subcommand(
      "agent", "Start the worker processes of this host: agent [options] -- train ...");
  agent
      ->add_option("--nproc_per_node", flags->options.nproc_per_node,
                   "Number of processes on this host")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  agent->add_option("--nnodes", flags->nnodes, "Number of hosts: N or MIN:MAX")
      ->capture_default_str();
  agent
      ->add_option("--node_rank", flags->options.node_rank,
                   "Rank of this host; host 0 serves the rendezvous")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  agent->add_option("--rdzv_endpoint", flags->endpoint, "HOST:PORT of the rendezvous on host 0");
  agent->add_option("--rdzv_id", flags->options.rdzv_id, "ID of the job, the same on all hosts");
  agent->add_option("--rdzv_key_file", flags->key_file, "File with the job's secret");
  agent->add_option("--rdzv_conf", flags->rdzv_conf,
                    "Rendezvous settings as key=value,...; tls=true encrypts all traffic");
  agent
      ->add_option("--max_restarts", flags->options.max_restarts,
                   "Maximum number of process restarts on this host")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  agent->add_option("--log_level", flags->log_level, "Log level")->capture_default_str();
  auto command = std::make_shared<std::vector<std::string>>();
  agent->add_option("command", *command, "Command of the worker, after --: train --task_name=...")
      ->required();
  agent->callback([=, &exit_code] { exit_code = run(*flags, *command); });
}

}  // namespace tilewright::cli
