#include "controller/api/cel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/contract/environment.h"
#include "common/contract/labels.h"
#include "common/contract/repository_id.h"
#include "common/contract/training_checks.h"
#include "common/contract/training_flags.h"
#include "common/contract/virtual_shards.h"
#include "controller/api/command.h"
#include "controller/api/trainer_path.h"
#include "controller/api/trainjob.h"

namespace tilewright::api::cel {
namespace {

constexpr const char* kSubdomainPattern =
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
// The longest pod name, which is also the host name of the pod.
constexpr int kMaxPodName = 63;

// The value of spec.trainer.FLAG, or its default.
std::string flag_or_default(const char* flag) {
  return fmt::format("self.spec.trainer.?{}.orValue({})", flag,
                     find_training_flag(flag)->default_value);
}

std::string max_replicas() {
  return "self.spec.elasticPolicy.?maxReplicas.orValue(self.spec.worker.replicas)";
}
// Those of a pod that count for the global batch.
constexpr const char* kProcesses =
    "(type(self.spec.nprocPerNode) == int ? int(self.spec.nprocPerNode) : 1)";
std::string max_processes() { return fmt::format("{} * {}", max_replicas(), kProcesses); }
std::string nominal_processes() {
  return fmt::format("self.spec.worker.replicas * {}", kProcesses);
}
std::string global_batch_size_of_spec() {
  return fmt::format("{} * {} * {}", flag_or_default("per_device_train_batch_size"),
                     flag_or_default("gradient_accumulation_steps"), nominal_processes());
}
constexpr const char* kHasFrozenShards = "has(self.status) && has(self.status.virtualShards)";
// Arguments may set the batch size and the shards. CEL cannot find their values; the operator does.
constexpr const char* kHasArguments = "has(self.spec.trainer.args)";
// The end of the messages about the global batch. Its arguments are batch_values().
constexpr const char* kBatchFormat =
    "(per_device_train_batch_size %d x %d processes x gradient_accumulation_steps %d)";
std::string batch_values() {
  return fmt::format("{}, {}, {}", flag_or_default("per_device_train_batch_size"),
                     nominal_processes(), flag_or_default("gradient_accumulation_steps"));
}

// The beginning of the rule of a path.
std::string_view or_empty(EmptyPath empty) {
  return empty == EmptyPath::kAllowed ? "self == '' || " : "";
}

// 1, 2, 4 ... kMaxVirtualShards.
std::string powers_of_two() {
  std::vector<std::int64_t> powers;
  for (std::int64_t power = 1; power <= kMaxVirtualShards; power *= 2) powers.push_back(power);
  return fmt::format("[{}]", fmt::join(powers, ", "));
}

// CEL: the value of the field `name` or of its alias, or ''.
std::string path_value(const char* name, const char* alias) {
  const std::string otherwise =
      alias == nullptr ? "''" : fmt::format("has(self.trainer.{0}) ? self.trainer.{0} : ''", alias);
  return fmt::format("has(self.trainer.{0}) ? self.trainer.{0} : {1}", name, otherwise);
}

}  // namespace

const char* const kLabelKeyPattern =
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const char* const kLabelValuePattern = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

std::string literal(std::string_view text) { return fmt::format("'{}'", text); }

std::string list(const std::vector<std::string>& items) {
  std::vector<std::string> quoted;
  quoted.reserve(items.size());
  for (const std::string& item : items) quoted.push_back(literal(item));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string found(std::string_view expected, std::string_view value, std::string_view conversion) {
  return fmt::format("\"found {}, expected {}\".format([{}])", conversion, expected, value);
}

Rule within(const Bounds& bounds) {
  return {
      .rule = fmt::format("self >= {} && self <= {}", bounds.minimum, bounds.maximum),
      .message_expression = found(
          fmt::format("an integer from {} to {}", bounds.minimum, bounds.maximum), "self", "%d")};
}

Rule process_count(const Bounds& bounds) {
  return {
      .rule = fmt::format("type(self) == int ? self >= {} && self <= {} : self == 'auto' || self "
                          "== 'cpu'",
                          bounds.minimum, bounds.maximum),
      .message_expression = fmt::format(
          "\"found %s, expected {}an integer from {} to {}\".format([self, type(self) == int ? "
          "'' : 'auto, cpu or '])",
          "%s", bounds.minimum, bounds.maximum)};
}

std::vector<Rule> quantity() {
  return {{.rule = "isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= "
                   "0 && quantity(string(self)).compareTo(quantity('9223372036854775')) <= 0",
           .message_expression = found("a quantity such as 2, 500m or 2Gi", "string(self)")},
          {.rule = "!isQuantity(string(self)) || "
                   "quantity(string(self)).compareTo(quantity('0')) != 0",
           .message_expression = found("a quantity above zero", "string(self)")}};
}

std::vector<Rule> optional_subdomain() {
  return {{.rule = fmt::format("self == '' || self.matches('{}')", kSubdomainPattern),
           .message_expression = found("lower-case letters, digits, '-' and '.'")}};
}

Rule subdomain(std::string_view expected) {
  return {.rule = fmt::format("self.matches('{}')", kSubdomainPattern),
          .message_expression = found(expected, "self == '' ? 'nothing' : self")};
}

Rule trainer_path(EmptyPath empty) {
  return {.rule = fmt::format("{}self.matches('^[^:]+:([^/]|$)') && "
                              "!self.matches('(?s)^[^:]*:(.*/)?[.][.](/.*)?$')",
                              or_empty(empty)),
          .message_expression =
              "\"found %s, expected %s\".format([self == '' ? 'nothing' : self, "
              "!self.matches('^[^:]+:') ? 'VOLUME:relative/path' : self.matches('^[^:]+:/') ? "
              "'a path relative to the volume' : \"a path that stays in its volume, without "
              "'..'\"])"};
}

Rule name_or_trainer_path(EmptyPath empty) {
  const Rule path = trainer_path(empty);
  return {.rule = fmt::format("self.contains(':') ? ({}) : {}(self.matches('{}') && "
                              "!self.contains('..') && !self.contains('--'))",
                              path.rule, or_empty(empty), kRepositoryIdPattern),
          .message_expression =
              fmt::format("self.contains(':') ? {} : {}", path.message_expression,
                          found(kExpectedNameOrPath, "self == '' ? 'nothing' : self"))};
}

std::string in_arguments(const std::vector<std::string_view>& flags) {
  std::vector<std::string> patterns;
  for (const std::string_view flag : flags) {
    std::string pattern;
    for (const char c : flag) pattern += c == '_' ? "[-_]" : std::string(1, c);
    patterns.push_back(std::move(pattern));
  }
  return fmt::format("has(self.args) && self.args.exists(a, a.matches('^--({})(=|$)'))",
                     fmt::join(patterns, "|"));
}

Rule some_task() {
  std::vector<std::string_view> flags = {"task_name", "dataset_name"};
  flags.insert(flags.end(), kOwnFileFlags.begin(), kOwnFileFlags.end());
  std::string fields = "has(self.task)";
  for (const std::string_view flag : flags) fields += fmt::format(" || has(self.{})", flag);
  return {.rule = fmt::format("{} || {}", fields, in_arguments(flags)),
          .message = fmt::format("found nothing, expected {}",
                                 describe_expected(*find_training_flag("task_name"))),
          .field_path = ".task",
          .reason = "FieldValueRequired"};
}

Rule below_volume() {
  return {.rule = "!self.matches('^[^:]*:[./]*$')",
          .message_expression = found("a directory on the volume, not the volume itself")};
}

std::vector<Rule> resources() {
  const std::string known = fmt::format(
      "name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') "
      "|| name.contains('/') && name.matches('{}')",
      kLabelKeyPattern);
  return {
      {.rule = fmt::format("self.all(name, {})", known),
       .message_expression = found("cpu, memory, ephemeral-storage or an extended resource such as "
                                   "example.org/device",
                                   fmt::format("self.filter(name, !({}))", known))},
      // 128 MiB hold the program and its libraries.
      {.rule = "!('memory' in self) || !isQuantity(string(self['memory'])) || "
               "quantity(string(self['memory'])).compareTo(quantity('0')) <= 0 || "
               "quantity(string(self['memory'])).compareTo(quantity('134217727')) > 0",
       .message_expression =
           "\"found memory %s, expected at least 128Mi\".format([string(self[\"memory\"])])"}};
}

std::vector<Rule> trainer_args() {
  // Dashes count as underscores, so "--seed" becomes "__seed".
  std::vector<std::string> known;
  std::vector<std::string> runtime;
  std::vector<std::string> secrets;
  for (const TrainingFlag& flag : training_flags()) {
    std::vector<std::string_view> names = {flag.name};
    names.insert(names.end(), flag.aliases.begin(), flag.aliases.end());
    for (const std::string_view name : names) {
      const std::string word = fmt::format("__{}", name);
      known.push_back(word);
      if (flag.set_by_runtime) runtime.push_back(word);
      if (flag.secret) secrets.push_back(word);
    }
    if (flag.type == FlagType::kBool) known.push_back(fmt::format("__no_{}", flag.name));
  }
  known.push_back(fmt::format("__{}", kConfigFlag));
  constexpr const char* kFlag = "self.split('=', 2)[0].replace('-', '_')";
  constexpr const char* kMessage = "\"{}\".format([self.split(\"=\", 2)[0]])";
  const auto refuse = [&](const std::vector<std::string>& words, std::string_view message) {
    return Rule{.rule = fmt::format("!self.startsWith('--') || !({} in {})", kFlag, list(words)),
                .message_expression = fmt::format(fmt::runtime(kMessage), message)};
  };
  return {{.rule = fmt::format("!self.startsWith('--') || self == '--' || {} in {}", kFlag,
                               list(known)),
           .message_expression = fmt::format(fmt::runtime(kMessage), "%s: unknown flag")},
          refuse(runtime, "%s: must not be set: the operator sets it"),
          refuse(secrets, "%s: must not be set; set HF_TOKEN in spec.worker.env from a Secret"),
          refuse({fmt::format("__{}", kConfigFlag)}, "%s: expected flags, not a file of flags")};
}

Rule unreserved_volume_name() {
  return {.rule = "!self.startsWith('tilewright-')",
          .message_expression = found("a name that does not start with tilewright-, which is "
                                      "reserved for the operator's volumes")};
}

std::vector<Rule> path_references(const char* name, const char* alias) {
  const std::string path = path_value(name, alias);
  const std::string plain = alias == nullptr ? path_value(name, nullptr) : path;
  std::vector<std::string> known;
  for (const char* variable :
       {env::kJobName, env::kJobUid, env::kJobKeyFile, env::kRendezvous, env::kWorkerIndex}) {
    known.push_back(fmt::format("$({})", variable));
  }
  return {
      {.rule = fmt::format("[{}].all(path, !path.matches('^[^:]+:') || has(self.volumes) && "
                           "self.volumes.exists(v, path.startsWith(v.name + ':')))",
                           path),
       .message_expression = fmt::format(
           "[{}].map(path, \"found the volume %s, expected one of spec.volumes (%s)\""
           ".format([path.split(':', 2)[0], has(self.volumes) ? self.volumes.map(v, v.name) : "
           "[]]))[0]",
           path)},
      // $$(NAME) is not a variable. The number of "$(" ... ")" must be the number of known names.
      {.rule = fmt::format(
           "[({}).replace('$$', '')].all(path, !path.contains('$(') || "
           "path.substring(path.indexOf('$(')).split('$(').filter(part, part.contains(')')).size() "
           "== {}.map(name, path.split(name).size() - 1).sum() + (has(self.worker.env) ? "
           "self.worker.env.map(e, has(e.valueFrom) ? 0 : path.split('$(' + e.name + ')').size() - "
           "1).sum() : 0))",
           plain, list(known)),
       .message = fmt::format("found a variable, which no plain value of spec.worker.env sets, "
                              "expected a variable such as $({})",
                              env::kJobName)}};
}

Rule writable_output() {
  const std::string path = path_value("output", "output_dir");
  return {.rule = fmt::format("[{}].all(path, !has(self.volumes) || !self.volumes.exists(v, "
                              "path.startsWith(v.name + ':') && has(v.persistentVolumeClaim) && "
                              "has(v.persistentVolumeClaim.readOnly) && "
                              "v.persistentVolumeClaim.readOnly))",
                              path),
          .message_expression =
              fmt::format("[{}].map(path, \"found the volume %s, which is read-only, expected a "
                          "writable volume\".format([path.split(':', 2)[0]]))[0]",
                          path)};
}

std::vector<Rule> max_replicas_limits() {
  const std::string replicas = max_replicas();
  const std::string processes = max_processes();
  const std::string batch = global_batch_size_of_spec();
  const std::string shards_flag = flag_or_default("virtual_shards");
  return {
      {.rule = fmt::format("{} <= {}", processes, kMaxVirtualShards),
       .message_expression = fmt::format("\"found %d processes, expected at most {0} ({0} virtual "
                                         "shards)\".format([{1}])",
                                         kMaxVirtualShards, processes)},
      // At least one shard for each process.
      {.rule = fmt::format(
           "{3} || [{0}].all(most, {1} ? most <= self.status.virtualShards : {2} == 0 || "
           "most <= {2})",
           processes, kHasFrozenShards, shards_flag, kHasArguments),
       .message_expression = fmt::format(
           "[{0}].map(most, \"found %d x nprocPerNode %d = %d processes, expected at most %d, the "
           "number of %s\".format([most / {4}, {4}, most, "
           "{1} ? self.status.virtualShards : self.spec.trainer.virtual_shards, "
           "{1} ? 'virtual shards that the job has started with' : "
           "'spec.trainer.virtual_shards']))[0]",
           processes, kHasFrozenShards, "", "", kProcesses)},
      // At least one example for each shard.
      {.rule = fmt::format(
           "{0} || {5} || {1} != 0 || {2}.exists(shards, shards >= {3} && shards <= "
           "{4})",
           kHasFrozenShards, shards_flag, powers_of_two(), processes, batch, kHasArguments),
       .message_expression = fmt::format(
           "[{0}].map(most, [{1}].map(batch, \"found %d x nprocPerNode %d = %d processes, expected "
           "at most %d, the largest power of two within the global batch of %d examples {2}\""
           ".format([most / {5}, {5}, most, "
           "{3}.filter(shards, shards <= batch).max(), batch, {4}])))[0][0]",
           processes, batch, kBatchFormat, powers_of_two(), batch_values(), kProcesses)}};
}

std::vector<Rule> virtual_shards_limits() {
  const std::string batch = global_batch_size_of_spec();
  return {{.rule = fmt::format("{} || {} || {} <= {}", kHasFrozenShards, kHasArguments,
                               flag_or_default("virtual_shards"), batch),
           .message_expression = fmt::format(
               "[{}].map(batch, \"found %d, expected no more than the global batch of %d examples "
               "{}\".format([self.spec.trainer.virtual_shards, batch, {}]))[0]",
               batch, kBatchFormat, batch_values())}};
}

std::vector<Rule> job_name() {
  const std::string last = max_replicas() + " - 1";
  const std::size_t infix = std::string_view(kWorkerInfix).size();
  return {
      {.rule = "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
       .message_expression = "\"found %s, expected lower-case letters, digits and '-', starting "
                             "with a letter and not ending with '-'\".format([self.metadata.name])",
       .field_path = ".metadata.name"},
      {.rule = fmt::format("[{}].all(last, size(self.metadata.name) + {} + size(string(last)) <= "
                           "{})",
                           last, infix, kMaxPodName),
       .message_expression =
           fmt::format("[{}].map(last, \"found %d characters, expected at most %d: the pod name "
                       "NAME{}%d has at most {}\".format([size(self.metadata.name), {} - "
                       "size(string(last)), last]))[0]",
                       last, kWorkerInfix, kMaxPodName, kMaxPodName - static_cast<int>(infix)),
       .field_path = ".metadata.name"}};
}

std::string runtime_variable_list() {
  return list({runtime_variables().begin(), runtime_variables().end()});
}

}  // namespace tilewright::api::cel
