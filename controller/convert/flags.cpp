#include "controller/convert/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "common/base/printable.h"
#include "common/contract/training_flags.h"
#include "common/launch/unknown_value.h"

namespace tilewright::convert {
namespace {

using nlohmann::ordered_json;

// The value of a flag as a manifest has it.
ordered_json flag_value(const TrainingSettings& settings, const TrainingFlag& flag) {
  return std::visit(
      [&](auto pointer) -> ordered_json {
        if constexpr (std::is_same_v<decltype(pointer), std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<decltype(pointer), std::string TrainingSettings::*> ||
                             std::is_same_v<decltype(pointer), bool TrainingSettings::*>) {
          return settings.*pointer;
        } else {
          return ordered_json::parse(fmt::format("{}", settings.*pointer));
        }
      },
      flag.member);
}

// "output_$(date +%F)" with `replacement` in place of each $(date ...).
std::string replace_dates(std::string text, std::string_view replacement) {
  for (std::size_t at = text.find("$(date"); at != std::string::npos;
       at = text.find("$(date", at + replacement.size())) {
    const std::size_t end = text.find(')', at);
    if (end == std::string::npos) break;
    text.replace(at, end + 1 - at, replacement);
  }
  return text;
}

// The scripts prefer a directory of that name in their working directory to the hub.
void note_hub_name(const std::string& flag, const std::string& name, const std::string& path,
                   const std::string& place, Draft& draft, const Volumes& volumes) {
  const std::string directory = name.empty() ? "" : volumes.path_on_volume(name);
  if (directory.empty()) return;
  draft.note(
      path, place,
      fmt::format("--{} {}: taken as a name on the hub; a directory of that name would be {}", flag,
                  name, launch::with_references(directory)),
      true);
}

void convert_flag(const Source& source, const TrainingFlag& flag, Draft& draft, Volumes& volumes) {
  const std::string name(flag.name);
  if (!source.training.arguments.is_set(name)) return;
  const std::string path = source.container.path_of_flag(name);
  // The fields that a manifest has for these flags.
  static const std::map<std::string, std::string, std::less<>> kFields = {
      {"model_name_or_path", "model"},
      {"task_name", "task"},
      {"data_dir", "data"},
      {"output_dir", "output"}};
  const auto renamed = kFields.find(name);
  const std::string field = renamed == kFields.end() ? name : renamed->second;
  const std::string place = member_path("spec.trainer", field);
  draft.made_of(place, path);
  if (name == "task_name" && !source.training.command.task.empty()) {
    draft.note(path, place, "run_qa.py with files of your own: question answering", true);
  }
  if (const std::string_view unused = flag.reason_unused_in_job(); !unused.empty()) {
    return draft.note(path, place, fmt::format("--{}: {}", name, unused));
  }
  if (flag.refused) return draft.note(path, place, fmt::format("--{}: {}", name, flag.help));
  if (flag.set_by_runtime) {
    return draft.note(path, place,
                      fmt::format("--{}: the operator sets it from the number of workers", name));
  }
  if (flag.secret) {
    return draft.note(path, place,
                      fmt::format("--{}: a manifest must not contain a token; set HF_TOKEN in "
                                  "worker.env from a Secret",
                                  name),
                      true);
  }
  ordered_json value = flag_value(source.training.arguments.settings(), flag);
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    if (const std::string unknown = launch::unknown_variable(text); !unknown.empty()) {
      return draft.error(path, fmt::format("--{}: {}", name, launch::refuse_unknown(unknown)));
    }
    const std::string job_name = "$(TILEWRIGHT_JOB_NAME)";
    const std::string without_date = replace_dates(text, job_name);
    if (without_date != text) {
      draft.note(
          path, place,
          fmt::format(
              "--{} {}: the start time is not known yet and is replaced by the name of the job; "
              "use metadata.generateName to get another directory in each run",
              name, text),
          true);
      text = without_date;
    }
    const bool hub = flag.hub_name || name == "model_name_or_path";
    const bool directory = flag.is_path() || hub;
    const bool is_path = text.starts_with('/') || text.starts_with("./") ||
                         text.starts_with("../") || text.starts_with("~");
    if (directory && !text.empty() && (is_path || !hub)) {
      text = volumes.trainer_path(text, name);
    } else if (hub) {
      note_hub_name(name, text, path, place, draft, volumes);
    }
    value = text;
  }
  draft.trainer()[field] = std::move(value);
}

}  // namespace

void convert_flags(const Source& source, Draft& draft, Volumes& volumes) {
  draft.tree["spec"]["trainer"] = ordered_json::object();
  constexpr std::array<std::string_view, 8> kFirst = {
      "model_name_or_path", "task_name",  "dataset_name",    "dataset_config_name",
      "data_dir",           "train_file", "validation_file", "test_file"};
  for (const std::string_view name : kFirst)
    convert_flag(source, *find_training_flag(name), draft, volumes);
  convert_flag(source, *find_training_flag("output_dir"), draft, volumes);
  for (const TrainingFlag& flag : training_flags()) {
    if (std::ranges::find(kFirst, flag.name) == kFirst.end() && flag.name != "output_dir") {
      convert_flag(source, flag, draft, volumes);
    }
  }
  for (const std::string& skipped : source.training.command.skipped) {
    draft.note(source.container.path_of_flag(""), "spec.trainer",
               fmt::format("{}: skipped, the worker image needs no packages", excerpt(skipped)));
  }
}

}  // namespace tilewright::convert
