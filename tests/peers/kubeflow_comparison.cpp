#include "tests/peers/kubeflow_comparison.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "controller/api/quantity.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

constexpr const char* kOnlyTheirs = "only Kubeflow's";
constexpr const char* kOnlyOurs = "only ours";

// Differences that docs/pytorchjobs.md explains. The patterns match "KIND STAGE:NAME /PATH" whole.
// In place of the path, kOnlyTheirs or kOnlyOurs: only that operator has the object.
struct Intended {
  const char* pattern;
  const char* subject;  // of its table
  // False: found only in some runs. Kubeflow's operator visits replica types in random order, and
  // creates Services again that it has deleted at a limit while its cache does not show that.
  bool always = true;
};
const Intended kIntended[] = {
    {R"(Pod \S+ /metadata/labels/(tilewright\.dev|app\.kubernetes\.io)~1\S+)",
     "labels and annotations"},
    {R"(Pod \S+ /metadata/annotations/tilewright\.dev~1\S+)", "labels and annotations"},
    {R"(Service \S+ /metadata/labels/(tilewright\.dev|app\.kubernetes\.io)~1\S+)",
     "labels and annotations"},
    {R"((HorizontalPodAutoscaler|PodGroup) \S+ /metadata/labels/\S+)", "labels and annotations"},
    {R"(Pod \S+ /spec/restartPolicy)", "restart in place"},
    {R"(Pod \S+ /spec/initContainers/.*)", "init container of workers"},
    {R"(Pod \S+ /spec/containers/pytorch/env/TILEWRIGHT_\S+)", "container pytorch"},
    {R"(Pod \S+ /spec/containers/pytorch/volumeMounts/tilewright-job-key/\S+)",
     "container pytorch"},
    {R"(Pod \S+ /spec/containers/pytorch/terminationMessagePolicy)", "container pytorch"},
    {R"(Pod \S+ /spec/volumes/tilewright-job-key/\S+)", "container pytorch"},
    {R"(Service \S+ /spec/publishNotReadyAddresses)", "init container of workers"},
    {R"(Pod \S+:elastic-\S+ /spec/containers/\S+/env/PET_STANDALONE/value)", "PET_STANDALONE"},
    {R"(PyTorchJob \S+ /status/conditions/TilewrightState/\S+)", "status"},
    {R"(PyTorchJob \S+ /status/conditions/Blocked/\S+)", "conditions"},
    {R"(PyTorchJob \S+ /status/lastReconcileTime)", "lastReconcileTime"},
    {R"(PyTorchJob \S+ /status/conditions/\S+/(message|lastTransitionTime|lastUpdateTime))",
     "messages of conditions"},
    {R"(PyTorchJob final:\S+ /status/replicaStatuses/Worker/selector)", "replicaStatuses", false},
    {R"(PyTorchJob queued:queued /status/replicaStatuses(/Worker/selector)?)", "replicaStatuses"},
    // Kubeflow's operator does not count again after a failure, so the deleted pods stay active.
    {R"(PyTorchJob final:(clean-running|clean-all|deadline|budget|no-retries) \S+/Worker/active)",
     "replicaStatuses"},
    {R"(PyTorchJob final:permanent /status/completionTime)", "exit code below 128"},
    {R"(PyTorchJob final:permanent-ttl only Kubeflow's)", "exit code below 128"},
    {R"(PyTorchJob restarting:retry /status/(state|conditions/(Running|Restarting)/\S+))",
     "Restarting"},
    {R"(PyTorchJob resuming:suspended /status/state)", "resumption"},
    {R"(PyTorchJob suspended:\S+ /status/startTime)", "startTime"},
    {R"((Pod|Service) final:(budget|no-retries|deadline)-worker-1 only ours)", "pods at a limit"},
    {R"(Service final:(budget|no-retries|deadline)-worker-0 only Kubeflow's)", "pods at a limit",
     false},
    // Kubeflow's operator counts a failed pod after it has checked the limit.
    {R"(PyTorchJob final:(budget|no-retries) \S+/Worker/failed)", "replicaStatuses"},
    {R"(HorizontalPodAutoscaler final:metrics only Kubeflow's)",
     "HorizontalPodAutoscaler at the end"},
    {R"(PodGroup \S+:(plugins|volcano)-annotated /metadata/annotations/\S+)", "gang scheduling"},
};

// Every leaf by its JSON pointer; elements of lists by their names or types, if they have one.
void flatten(const json& value, const std::string& path, std::map<std::string, json>& leaves) {
  const auto escaped = [](std::string name) {
    for (std::size_t at = 0; (at = name.find_first_of("~/", at)) != std::string::npos; at += 2) {
      name.replace(at, 1, name[at] == '~' ? "~0" : "~1");
    }
    return name;
  };
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, each] : value.items())
      flatten(each, path + "/" + escaped(name), leaves);
  } else if (value.is_array() && !value.empty()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      std::string name = std::to_string(i);
      for (const char* key : {"name", "type"}) {
        if (value[i].is_object() && value[i].contains(key) && value[i][key].is_string()) {
          name = value[i][key];
          break;
        }
      }
      flatten(value[i], path + "/" + escaped(name), leaves);
    }
  } else {
    leaves[path] = value;
  }
}

std::map<std::string, json> leaves_of(const json& object) {
  std::map<std::string, json> leaves;
  flatten(object, "", leaves);
  return leaves;
}

}  // namespace

json normalized(json object, const std::string& namespace_name) {
  json& metadata = object["metadata"];
  for (const char* field : {"uid", "creationTimestamp", "resourceVersion", "managedFields",
                            "generation", "namespace", "generateName"}) {
    metadata.erase(field);
  }
  if (metadata.contains("ownerReferences")) metadata["ownerReferences"][0].erase("uid");
  if (object["kind"] != "PyTorchJob") object.erase("status");
  if (object["kind"] == "Service") {
    for (const char* field : {"clusterIPs", "ipFamilies"}) object["spec"].erase(field);
  }
  if (object["kind"] == "Pod") object["spec"].erase("nodeName");
  if (object["kind"] == "PodGroup") {
    // 6Gi and 6442450944 are the same.
    for (auto& [name, amount] : object["spec"]["minResources"].items()) {
      const auto parsed =
          api::parse_quantity(amount.is_string() ? amount.get<std::string>() : amount.dump());
      EXPECT_TRUE(parsed) << amount;
      if (parsed) amount = parsed->milli;
    }
  }
  if (object["kind"] == "PyTorchJob") {
    object.erase("spec");
    object.erase("metadata");
    for (const char* field : {"startTime", "completionTime"}) {
      if (object["status"].contains(field)) object["status"][field] = "set";
    }
    // What `kubectl get` shows.
    const json& conditions = object["status"]["conditions"];
    if (!conditions.empty()) object["status"]["state"] = conditions.back()["type"];
  }
  const std::string text =
      std::regex_replace(object.dump(), std::regex(namespace_name + "\\b"), "NS");
  json parsed = json::parse(text);
  return parsed;
}

void Comparison::compare(const Snapshots& theirs, const Snapshots& ours) {
  std::set<std::string> names;
  for (const auto* snapshots : {&theirs, &ours}) {
    for (const auto& [name, object] : *snapshots) names.insert(name);
  }
  objects_ = names.size();
  std::set<const Intended*> found;
  const auto differ = [&](const std::string& name, const std::string& path, const json& left,
                          const json& right) {
    const std::string where = fmt::format("{} {}", name, path);
    const auto* row = std::ranges::find_if(kIntended, [&](const Intended& each) {
      return std::regex_match(where, std::regex(each.pattern));
    });
    if (row == std::end(kIntended)) {
      ADD_FAILURE() << where << ": Kubeflow's operator " << left << ", ours " << right;
      return;
    }
    found.insert(row);
    found_[row->subject].insert(fmt::format("{} {}", name.substr(0, name.find(' ')), path));
  };
  for (const std::string& name : names) {
    if (theirs.contains(name) != ours.contains(name)) {
      const bool theirs_has_it = theirs.contains(name);
      differ(name, theirs_has_it ? kOnlyTheirs : kOnlyOurs, theirs_has_it, !theirs_has_it);
      continue;
    }
    const auto left = leaves_of(theirs.at(name));
    const auto right = leaves_of(ours.at(name));
    std::set<std::string> paths;
    for (const auto* leaves : {&left, &right}) {
      for (const auto& [path, value] : *leaves) paths.insert(path);
    }
    for (const std::string& path : paths) {
      const json a = left.contains(path) ? left.at(path) : json("absent");
      const json b = right.contains(path) ? right.at(path) : json("absent");
      if (a == b) {
        ++equal_;
      } else {
        differ(name, path, a, b);
      }
    }
  }
  for (const Intended& each : kIntended) {
    EXPECT_TRUE(found.contains(&each) || !each.always)
        << "no difference any more: " << each.pattern;
  }
}

void Comparison::write_report(std::ostream& out, std::size_t jobs) const {
  out << fmt::format(
      "# Objects of Kubeflow's and Tilewright's operators\nWritten by `tests/peers/kubeflow/run`: "
      "{} jobs, {} objects at stages of their jobs, {} equal fields. The fields that differ, by "
      "the subject of the table in [docs/pytorchjobs.md](../../../docs/pytorchjobs.md):\n",
      jobs, objects_, equal_);
  for (const auto& [subject, paths] : found_) {
    out << "\n## " << subject << "\n";
    for (const std::string& path : paths) out << "- `" << path << "`\n";
  }
}

}  // namespace tilewright::testing
