#include "worker/cli/launch_command.h"

#include <unistd.h>

#include <cstdlib>

#include "common/base/log.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/launch/command.h"
#include "worker/cli/variables.h"

namespace tilewright::cli {
namespace {

void set_variables(const launch::Command& command, Logger& log) {
  for (const auto& [name, value] : command.variables) {
    // The processes that an agent starts would report libraries that do not exist.
    if (name == "LD_PRELOAD") {
      log.info("{}: not used, because the program is already running", name);
      continue;
    }
    const std::string expanded = expand_arguments({value}, environment_variable).arguments.front();
    setenv(name.c_str(), expanded.c_str(), 1);
  }
}

void append_train(const launch::Command& command, std::vector<std::string>& words) {
  words.emplace_back("train");
  for (std::string& word : launch::train_arguments(command)) words.push_back(std::move(word));
}

}  // namespace

std::vector<std::string> worker_command(const std::vector<std::string>& words) {
  const launch::Command command = launch::interpret(words, environment_variable).or_throw();
  const auto log = make_logger(log_level(environment_variable(env::kLogLevel)).name);
  log->info("{}", launch::describe(command));
  if (!command.directory.empty() && chdir(command.directory.c_str()) != 0) {
    log->info("cd {}: not possible here; continuing in the current directory", command.directory);
  }
  set_variables(command, *log);
  std::vector<std::string> worker = {"tilewright-worker"};
  // A single process of a pod whose rendezvous the operator serves needs no agent.
  if (command.torchrun && (environment_variable(env::kRendezvous).empty() ||
                           command.torchrun->nproc_per_node.value_or("1") != "1")) {
    worker.emplace_back("agent");
    worker.insert(worker.end(), command.torchrun_flags.begin(), command.torchrun_flags.end());
    if (worker.back() != "--") worker.emplace_back("--");
  }
  append_train(command, worker);
  return worker;
}

bool begins_with_script(std::span<const std::string> words) {
  return !words.empty() && words.front().ends_with(".py");
}

std::vector<std::string> train_command(std::span<const std::string> words) {
  std::vector<std::string> python = {"python"};
  python.insert(python.end(), words.begin(), words.end());
  const launch::Command command = launch::interpret(python, environment_variable).or_throw();
  std::vector<std::string> train;
  append_train(command, train);
  return train;
}

}  // namespace tilewright::cli
