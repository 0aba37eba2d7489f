#include "controller/convert/environment.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/printable.h"
#include "common/contract/unneeded_variables.h"
#include "common/json/members.h"
#include "common/launch/unknown_value.h"
#include "controller/api/command.h"
#include "controller/api/expansion.h"
#include "controller/api/trainer_path.h"

namespace tilewright::convert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Empty: the variable has an effect or is unknown.
std::string_view why_unneeded(std::string_view variable) {
  return api::is_runtime_variable(variable) ? "the operator sets it"
                                            : why_unneeded_in_job(variable);
}

}  // namespace

void convert_environment(const Source& source, Draft& draft, Volumes& volumes) {
  ordered_json target = ordered_json::array();
  const auto convert_variable = [&](const std::string& name, std::string value,
                                    const std::string& path) {
    const std::string place = member_path("spec.worker.env", name);
    if (const std::string_view why = why_unneeded(name); !why.empty()) {
      return draft.note(
          path, place,
          fmt::format("{} {}: {}", name, excerpt(launch::with_references(value)), why));
    }
    if (const std::string unknown = launch::unknown_variable(value); !unknown.empty()) {
      return draft.error(path, fmt::format("{}: {}", name, launch::refuse_unknown(unknown)));
    }
    draft.made_of(element_path("spec.worker.env", target.size()), path);
    const auto on_volume = source.container.place_of(value);
    if (!on_volume.ok()) {
      return draft.error(
          path, fmt::format("{}: found {} {}", name, excerpt(value), on_volume.error().message));
    }
    if (const auto& found = *on_volume; found && volumes.use(found->volume)) {
      draft.note(path, element_path("spec.worker.env", target.size()),
                 fmt::format("{} {}: the volume is at /mnt/tilewright/{}", name, excerpt(value),
                             found->volume),
                 true);
      value = api::pod_path({found->volume, found->relative});
    }
    target.push_back({{"name", name}, {"value", value}});
  };
  // Those that the script sets replace those of the container.
  const auto& exported = source.training.command.variables;
  const json& env = member(source.container.json(), "env");
  api::Environment known;  // values that the kubelet expands again
  for (std::size_t i = 0; env.is_array() && i < env.size(); ++i) {
    const std::string name = string_member(env[i], "name");
    const std::string path = element_path(source.container.path() + ".env", i);
    const bool plain = member(env[i], "valueFrom").is_null();
    if (plain) known[name] = api::expand_known(string_member(env[i], "value"), known);
    if (exported.contains(name)) continue;
    if (plain || !why_unneeded(name).empty()) {
      convert_variable(name, plain ? known[name] : "", path);
    } else {
      draft.made_of(element_path("spec.worker.env", target.size()), path);
      target.push_back({{"name", name}, {"valueFrom", ordered_json(env[i]["valueFrom"])}});
    }
  }
  for (const auto& [name, value] : exported) {
    convert_variable(name, value, source.container.path_of_flag(""));
  }
  if (!target.empty()) draft.worker()["env"] = std::move(target);
}

}  // namespace tilewright::convert
