#include "common/contract/reference.h"

#include <fmt/format.h>

#include <initializer_list>
#include <span>
#include <string_view>

#include "common/base/exit_codes.h"
#include "common/contract/environment.h"
#include "common/contract/kubeflow.h"
#include "common/contract/labels.h"
#include "common/contract/ports.h"
#include "common/contract/training_flags.h"
#include "common/contract/unneeded_variables.h"

namespace tilewright {
namespace {

// One row of a Markdown table. Escapes "|", which would end a cell.
std::string table_row(std::initializer_list<std::string> cells) {
  std::string line = "|";
  for (const std::string& cell : cells) {
    line += ' ';
    for (const char c : cell) line += c == '|' ? "\\|" : std::string(1, c);
    line += " |";
  }
  return line + "\n";
}

std::string table_head(std::initializer_list<std::string> titles) {
  std::string text = table_row(titles) + "|";
  for (std::size_t i = 0; i < titles.size(); ++i) text += "---|";
  return text + "\n";
}

std::string code(std::string_view text) {
  return text.empty() ? std::string() : fmt::format("`{}`", text);
}

std::string terms_section() {
  return "## Terms\n" + table_head({"term", "meaning"}) +
         table_row({"coordinator",
                    "The rendezvous server of a job. It tells the workers who takes part and with "
                    "which rank, and notices lost ones. It runs in the operator, in "
                    "`tilewright up`, in the agent of the first host or, under mpirun and srun, in "
                    "rank 0."}) +
         table_row({"membership epoch",
                    "A period in which the workers of a job and their ranks stay the same: a "
                    "rendezvous round of torchrun. It ends when a worker joins or leaves. It has "
                    "nothing to do with epochs of the training data."}) +
         table_row({"virtual shard",
                    "A fixed part of the global batch. The gradients of all shards are summed in "
                    "a fixed order, so the weights do not depend on which worker computes a "
                    "shard."});
}

std::string environment_section() {
  std::string text = "## Environment variables\n" +
                     table_head({"variable", "read by", "set by", "default", "meaning"});
  for (const env::Variable& variable : env::kVariables) {
    text += table_row({code(variable.name), std::string(variable.read_by),
                       variable.set_by.empty() ? "user" : std::string(variable.set_by),
                       std::string(variable.default_value), std::string(variable.meaning)});
  }
  return text;
}

std::string unneeded_variables_section() {
  std::string text =
      "## Environment variables without effect\n"
      "Variables of PyTorch and its libraries, except those of the table above. The job's first "
      "process lists those of the rows `all` that are set in its log; `tilewright convert` leaves "
      "them out.\n\n" +
      table_head({"variables", "reason", "jobs"});
  for (const UnneededVariables& row : kUnneededVariables) {
    std::string names;
    for (const std::string_view name : row.names) {
      if (!name.empty()) names += (names.empty() ? "" : ", ") + code(name);
    }
    text += table_row({names, std::string(row.reason), row.only_in_job ? "TrainJobs" : "all"});
  }
  return text;
}

std::string ports_section() {
  std::string text = "## Ports\n" + table_head({"port", "name in the pod", "listener", "purpose"});
  for (const Port& port : kPorts) {
    text += table_row({std::to_string(port.number), code(port.container_port),
                       std::string(port.listener), std::string(port.purpose)});
  }
  return text;
}

std::string metadata_section(std::string_view title, std::span<const MetadataKey> keys) {
  std::string text =
      fmt::format("## {}\n", title) + table_head({"key", "objects", "value", "meaning"});
  for (const MetadataKey& key : keys) {
    text += table_row(
        {code(key.name), std::string(key.objects), code(key.value), std::string(key.meaning)});
  }
  return text;
}

std::string kubeflow_variables_section() {
  std::string text =
      "## Variables of PyTorchJobs\n"
      "The operator sets them in every container of a PyTorchJob, as Kubeflow's training operator "
      "v1 does, with the differences in [pytorchjobs.md](pytorchjobs.md).\n\n" +
      table_head({"variable", "set if", "value"});
  for (const kubeflow::Variable& variable : kubeflow::kVariables) {
    text += table_row(
        {code(variable.name), std::string(describe(variable.set_if)), std::string(variable.value)});
  }
  return text;
}

std::string exit_codes_section() {
  std::string text =
      "## Exit codes\n"
      "Both programs use these exit codes. With `restartPolicy: ExitCode` the operator retries 128 "
      "and above. With every `restartPolicy`, 2, 14 and, of an exact training, 21 fail a TrainJob, "
      "and after 20 it is Blocked.\n\n" +
      table_head({"code", "meaning"});
  for (int number = 0; number < 256; ++number) {
    const std::string_view meaning = describe(static_cast<ExitCode>(number));
    if (!meaning.empty()) text += table_row({std::to_string(number), std::string(meaning)});
  }
  return text;
}

// The length limit of strings stands in the error messages.
std::string value_of(const TrainingFlag& flag) {
  return flag.type == FlagType::kString ? "a string" : describe_expected(flag);
}

std::string flags_section() {
  std::string text =
      "## Training flags\n"
      "Flags of `tilewright-worker train` and fields of `spec.trainer` in a TrainJob. The operator "
      "and `tilewright up` set the flags marked (set by the operator); a manifest may not.\n\n" +
      table_head({"flag", "value", "default", "meaning"});
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.works()) continue;
    std::string meaning(flag.help);
    for (const std::string_view alias : flag.aliases) {
      meaning += fmt::format("; also `--{}`", alias);
    }
    if (flag.set_by_runtime) meaning += " (set by the operator)";
    text += table_row(
        {code(fmt::format("--{}", flag.name)), value_of(flag),
         flag.default_description.empty() ? code(flag.default_value) : describe_default(flag),
         meaning});
  }
  return text;
}

std::string differences_section() {
  std::string text =
      "## Differences from Hugging Face's flags\n"
      "Flags that are neither in this table nor in the two below have the names, values, defaults "
      "and meanings of `run_glue.py`, `run_qa.py` and `TrainingArguments`, or are Tilewright's "
      "own.\n\n" +
      table_head({"flag", "default", "difference"});
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.difference.empty()) continue;
    text += table_row(
        {code(fmt::format("--{}", flag.name)),
         flag.default_description.empty() ? code(flag.default_value) : describe_default(flag),
         std::string(flag.difference)});
  }
  return text;
}

std::string reasons_table(bool refused) {
  std::string text = table_head({"flag", "value", "reason"});
  for (const TrainingFlag& flag : training_flags()) {
    if (refused ? !flag.refused : !flag.accepted_without_effect) continue;
    std::string reason(flag.help);
    if (!refused && !flag.in_manifest()) reason += " (not in a manifest)";
    text += table_row({code(fmt::format("--{}", flag.name)), value_of(flag), reason});
  }
  return text;
}

std::string other_flags_section() {
  return "## Training flags without effect\n"
         "Accepted, so that command lines keep working. They are also fields of a manifest; "
         "`tilewright validate` warns about them.\n\n" +
         reasons_table(false) +
         "\n## Training flags that are refused\n"
         "An error unless the value is false, 0, -1, none, {} or [], or the object that a "
         "TrainingArguments with defaults has.\n\n" +
         reasons_table(true);
}

}  // namespace

std::string reference_page() {
  return "# Reference\n"
         "Generated by `make docs` from the tables of `common/contract` and `common/base`; do not "
         "edit.\n\n" +
         terms_section() + "\n" + environment_section() + "\n" + unneeded_variables_section() +
         "\n" + ports_section() + "\n" + metadata_section("Labels", labels::kLabels) + "\n" +
         metadata_section("Annotations", annotations::kAnnotations) + "\n" +
         metadata_section("Labels of PyTorchJobs", kubeflow::kLabels) + "\n" +
         kubeflow_variables_section() + "\n" + exit_codes_section() + "\n" + flags_section() +
         "\n" + differences_section() + "\n" + other_flags_section();
}

}  // namespace tilewright
