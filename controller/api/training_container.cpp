#include "controller/api/training_container.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <utility>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/kubeflow.h"
#include "common/json/members.h"
#include "common/json/positions.h"
#include "common/launch/unknown_value.h"

namespace tilewright::api {
namespace {

namespace fs = std::filesystem;

std::size_t index_of(const PyTorchReplicaSpec& replica, const nlohmann::json& container) {
  return static_cast<std::size_t>(
      &container -
      replica.pod_template["spec"]["containers"].get_ref<const nlohmann::json::array_t&>().data());
}

// Names of flags compare with dashes as underscores.
std::string normal_name(std::string_view word) {
  std::string name(word.substr(0, word.find('=')));
  std::ranges::replace(name, '-', '_');
  return name;
}

// A variable in place of a flag, or of a value that must be known; empty: there is none, or the
// flag is unknown whatever its value.
std::string unknown_in(const FlagArgument& argument) {
  const bool text = argument.flag != nullptr && argument.flag->type == FlagType::kString &&
                    !argument.flag->refused;
  const std::string unknown = launch::unknown_variable(argument.name);
  const bool known_flag = argument.flag != nullptr || argument.name.empty();
  return unknown.empty() && known_flag && !text ? launch::unknown_variable(argument.value)
                                                : unknown;
}

// `flag`: empty if the variable stands in place of a flag.
Error refuse_unknown(std::string_view flag, std::string_view variable) {
  const bool named = !flag.empty() && launch::unknown_variable(flag).empty();
  return {ExitCode::kUsage, fmt::format("{}{}{}{}", named ? "--" : "", named ? flag : "",
                                        named ? ": " : "", launch::refuse_unknown(variable))};
}

bool holds(kubeflow::SetIf condition, const PyTorchJobSpec& spec,
           const PyTorchReplicaSpec& replica) {
  using kubeflow::SetIf;
  const std::optional<PyTorchElasticPolicy>& elastic = spec.elastic_policy;
  switch (condition) {
    case SetIf::kAlways:
      return true;
    case SetIf::kMaster:
      return spec.master.has_value();
    case SetIf::kElasticPolicy:
    case SetIf::kOperatorStore:  // the operator's flags decide too
      return elastic.has_value();
    case SetIf::kMaxRestarts:
      return elastic && elastic->max_restarts;
    case SetIf::kRdzvId:
      return elastic && elastic->rdzv_id;
    case SetIf::kRdzvConf:
      return elastic && !elastic->rdzv_conf.empty();
    case SetIf::kStandalone:
      return elastic && elastic->standalone.value_or(false);
    case SetIf::kGracePeriod:
      return member(member(replica.pod_template, "spec"), "terminationGracePeriodSeconds")
          .is_number_integer();
  }
  return false;
}

}  // namespace

SetByOperator set_by_operator(std::string_view name, const PyTorchJobSpec& spec,
                              const PyTorchReplicaSpec& replica) {
  const auto* const variable =
      std::ranges::find(kubeflow::kVariables, name, &kubeflow::Variable::name);
  if (variable == std::end(kubeflow::kVariables)) {
    return kubeflow::may_set(name) ? SetByOperator::kOverrides : SetByOperator::kNo;
  }
  if (!holds(variable->set_if, spec, replica)) return SetByOperator::kNo;
  return variable->overrides ? SetByOperator::kOverrides : SetByOperator::kUnlessGiven;
}

TrainingContainer::TrainingContainer(const PyTorchJobSpec& spec, const PyTorchReplicaSpec& replica,
                                     const std::string& path)
    : spec_(&spec), replica_(&replica), json_(pytorch_container(replica)) {
  TW_CHECK(json_ != nullptr, "a replica without a container named {}", kPyTorchContainer);
  path_ = element_path(path + ".template.spec.containers", index_of(replica, *json_));
  std::vector<std::pair<std::string, std::string>> variables;
  Environment env_from;
  const nlohmann::json& env = member(*json_, "env");
  for (std::size_t i = 0; env.is_array() && i < env.size(); ++i) {
    const std::string name = string_member(env[i], "name");
    if (!member(env[i], "valueFrom").is_null()) {
      variables.emplace_back(name, launch::unknown_value(name));
      continue;
    }
    variables.emplace_back(name, string_member(env[i], "value"));
    for (const std::string& reference : unknown_references(variables.back().second, {})) {
      if (may_be_in_env_from(reference)) env_from[reference] = launch::unknown_value(reference);
    }
  }
  environment_ = expand_environment(variables, env_from);
  for (const char* list : {"command", "args"}) {
    const nlohmann::json& words = member(*json_, list);
    for (std::size_t i = 0; words.is_array() && i < words.size(); ++i) {
      if (!words[i].is_string()) continue;  // the decoder has reported it
      words_.push_back(
          {expanded(words[i].get_ref<const std::string&>()), element_path(path_ + "." + list, i)});
    }
  }
}

Result<Training> TrainingContainer::training() const {
  Result<Training> training = read_training();
  if (training.ok()) return training;
  return Error{training.error().code, launch::with_references(training.error().message)};
}

Result<Training> TrainingContainer::read_training() const {
  if (!member(*json_, "command").is_array() || words_.empty()) {
    return Error{ExitCode::kCommandNotFound,
                 "found no command, expected torchrun or python with run_qa.py or run_glue.py"};
  }
  std::vector<std::string> words;
  for (const Word& word : words_) words.push_back(word.text);
  const auto variable = [this](const char* name) {
    // The container runtime sets $HOSTNAME, and the kubelet does not know it.
    return value_of(name).value_or(
        name == std::string_view("HOSTNAME") ? launch::unknown_value(name) : std::string());
  };
  Result<launch::Command> command = launch::interpret(words, variable);
  if (!command.ok()) return command.error();
  const std::vector<std::string>& arguments = command->arguments;
  const bool has_file = std::ranges::any_of(
      arguments, [](const std::string& word) { return normal_name(word) == "__config"; });
  if (has_file || (!arguments.empty() && arguments.front().ends_with(".json"))) {
    return Error{ExitCode::kUsage, "found a file of flags, expected the flags themselves"};
  }
  if (command->torchrun && command->torchrun->nproc_per_node) {
    const std::string unknown = launch::unknown_variable(*command->torchrun->nproc_per_node);
    if (!unknown.empty()) return refuse_unknown("nproc_per_node", unknown);
  }
  for (const FlagArgument& argument : split_command_line(arguments)) {
    const std::string unknown = unknown_in(argument);
    if (!unknown.empty()) return refuse_unknown(argument.name, unknown);
  }
  Result<TrainingArguments> parsed = TrainingArguments::parse(launch::train_arguments(*command));
  if (!parsed.ok()) return parsed.error();
  return Training{std::move(*command), std::move(*parsed)};
}

std::optional<std::string> TrainingContainer::value_of(const std::string& name) const {
  const SetByOperator set = set_by_operator(name, *spec_, *replica_);
  if (set == SetByOperator::kOverrides) {
    const GivenProcesses processes = given_processes(*spec_);
    const bool known =
        name == kubeflow::variable("PET_NPROC_PER_NODE") && processes.problem().empty();
    return known ? processes.text : launch::unknown_value(name);
  }
  if (const auto found = environment_.find(name); found != environment_.end()) return found->second;
  if (set == SetByOperator::kUnlessGiven || may_be_in_env_from(name)) {
    return launch::unknown_value(name);
  }
  return std::nullopt;
}

bool TrainingContainer::may_be_in_env_from(std::string_view name) const {
  // The keys of ConfigMaps and Secrets, so that "date +%F" is none.
  const bool is_key = std::ranges::all_of(
      name, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; });
  if (!is_key) return false;
  const nlohmann::json& sources = member(*json_, "envFrom");
  return sources.is_array() && std::ranges::any_of(sources, [&](const nlohmann::json& source) {
           return name.starts_with(string_member(source, "prefix"));
         });
}

std::string TrainingContainer::expanded(std::string_view text) const {
  Environment values;
  for (const std::string& name : unknown_references(text, {})) {
    if (const auto value = value_of(name)) values[name] = *value;
  }
  return expand(text, values);
}

std::string TrainingContainer::path_of_flag(const std::string& name) const {
  for (const Word& word : words_) {
    const std::string normal = normal_name(word.text);
    if (!normal.starts_with("__")) continue;
    if (normal == "__" + name || normal == "__no_" + name) return word.path;
    for (const FlagArgument& argument : split_command_line(std::span(&word.text, 1))) {
      // By an alias or the beginning of its name.
      if (argument.flag != nullptr && argument.flag->name == name) return word.path;
    }
  }
  // A script of bash is one word.
  for (const Word& word : words_) {
    if (word.text.find(' ') != std::string::npos) return word.path;
  }
  return path_ + ".command";
}

Result<std::optional<TrainingContainer::Place>> TrainingContainer::place_of(
    const std::string& path_in_container) const {
  const fs::path path = fs::path(path_in_container).lexically_normal();
  if (path.is_relative()) return std::optional<Place>();
  const nlohmann::json* mount = nullptr;  // the one with the longest path
  std::size_t longest = 0;
  fs::path in_mount;
  const nlohmann::json& mounts = member(*json_, "volumeMounts");
  for (std::size_t i = 0; mounts.is_array() && i < mounts.size(); ++i) {
    std::string at = fs::path(string_member(mounts[i], "mountPath")).lexically_normal().string();
    while (at.size() > 1 && at.ends_with('/')) at.pop_back();
    if (at.size() <= longest) continue;
    fs::path relative = path.lexically_relative(at);
    if (relative.empty() || *relative.begin() == "..") continue;
    longest = at.size();
    mount = &mounts[i];
    in_mount = std::move(relative);
  }
  if (mount == nullptr) return std::optional<Place>();
  const Result<std::string> sub_path = sub_path_of(*mount);
  if (!sub_path.ok()) return sub_path.error();
  std::string text = (fs::path(*sub_path) / in_mount).lexically_normal().string();
  while (text.ends_with('/')) text.pop_back();
  if (text == ".") text.clear();
  return std::optional<Place>({string_member(*mount, "name"), text});
}

Result<std::string> TrainingContainer::sub_path_of(const nlohmann::json& mount) const {
  const std::string expression = string_member(mount, "subPathExpr");
  if (expression.empty()) return string_member(mount, "subPath");
  for (const std::string& name : unknown_references(expression, {})) {
    const std::optional<std::string> value = value_of(name);
    if (value && launch::unknown_variable(*value).empty()) continue;
    const bool overridden = set_by_operator(name, *spec_, *replica_) == SetByOperator::kOverrides;
    const std::string expected =
        overridden ? fmt::format("a path without {}, which the operator sets", excerpt(name))
                   : fmt::format("a plain value of {} in env", excerpt(name));
    return Error{ExitCode::kManifest, fmt::format("on a volume with subPathExpr {}, expected {}",
                                                  excerpt(expression), expected)};
  }
  return expanded(expression);
}

std::optional<std::int64_t> GivenProcesses::number() const {
  return parse_number<std::int64_t>(text, 1, kMaxProcessesPerNode);
}

std::string GivenProcesses::problem() const {
  if (text == "auto" || text == "cpu" || number()) return "";
  const bool device = text == "gpu" || text == "xpu";
  return fmt::format("found {}, expected auto, cpu or an integer from 1 to {}{}", excerpt(text),
                     kMaxProcessesPerNode, device ? ": Tilewright computes on CPUs only" : "");
}

GivenProcesses given_processes(const PyTorchJobSpec& spec) {
  if (spec.elastic_policy && spec.elastic_policy->nproc_per_node) {
    return {std::to_string(*spec.elastic_policy->nproc_per_node),
            "spec.elasticPolicy.nProcPerNode"};
  }
  return {spec.nproc_per_node.value_or("auto"), "spec.nprocPerNode"};
}

GivenProcesses given_processes(const PyTorchJobSpec& spec, const TrainingContainer& container,
                               const launch::Command& command) {
  if (!command.torchrun) return {std::to_string(1), given_processes(spec).path};
  GivenProcesses fields = given_processes(spec);  // in the pod, PET_NPROC_PER_NODE
  if (command.torchrun->nproc_per_node.value_or(fields.text) == fields.text) return fields;
  return {*command.torchrun->nproc_per_node, container.path_of_flag("nproc_per_node")};
}

}  // namespace tilewright::api
