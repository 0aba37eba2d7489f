#include "controller/manager/records.h"

#include <iterator>
#include <utility>

#include "common/contract/labels.h"
#include "common/contract/reported.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/json_members.h"
#include "controller/api/validate.h"
#include "controller/kube/answer_json.h"
#include "controller/reconcile/observe_pod.h"

namespace tilewright::manager {

using api::member;
using api::text_member;
using nlohmann::json;

namespace {

std::int64_t integer_member(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_number_integer() ? value.get<std::int64_t>() : 0;
}

std::shared_ptr<const JobResults> results_of(const json& status) {
  // Written with the job's first start. Of a thousand jobs that wait nothing is kept, or told.
  if (integer_member(status, "nominalWorkers") == 0) return nullptr;
  auto results = std::make_shared<JobResults>();
  const json& restarts = member(status, "restarts");
  results->restarts = {integer_member(restarts, "program"),
                       integer_member(restarts, "infrastructure"),
                       integer_member(restarts, "outOfMemory")};
  for (const auto& [name, value] : member(member(status, "progress"), "metrics").items()) {
    if (!name.starts_with(reported::kEvaluationPrefix) || !value.is_number()) continue;
    results->evaluation.emplace(name.substr(reported::kEvaluationPrefix.size()),
                                value.get<double>());
  }
  return results;
}

}  // namespace

std::string key_of(std::string_view namespace_name, std::string_view name) {
  std::string key(namespace_name);
  key += '/';
  key += name;
  return key;
}

JobAddress address_of(std::string_view key) {
  const std::size_t slash = key.find('/');
  return {std::string(key.substr(0, slash)), std::string(key.substr(slash + 1))};
}

JobRecord record_of_job(const json& object) {
  json kept = json::object();
  for (const char* name : {"apiVersion", "kind", "spec", "status"}) {
    if (object.contains(name)) kept[name] = object[name];
  }
  const json& from = member(object, "metadata");
  json& metadata = kept["metadata"] = json::object();
  for (const char* name : {"name", "namespace", "uid", "resourceVersion", "generation",
                           "creationTimestamp", "deletionTimestamp"}) {
    if (from.contains(name)) metadata[name] = from[name];
  }
  const json& status = member(object, "status");
  JobRecord record{
      json::to_cbor(kept),
      {integer_member(from, "generation"), !member(from, "deletionTimestamp").is_null()},
      text_member(status, "phase"),
      results_of(status)};
  record.cbor.shrink_to_fit();
  return record;
}

json tree_of(const JobRecord& record) { return json::from_cbor(record.cbor); }

DecodedJob decode(const json& object) {
  api::Decoded decoded = api::decode_object(object);
  api::apply_defaults(decoded.job);
  DecodedJob result{std::move(decoded.job),
                    object.value("status", json::object()),
                    std::move(decoded.errors),
                    {}};
  if (!result.errors.empty()) return result;
  api::Findings findings = api::validate(result.job);
  findings.append(api::validate_for_cluster(result.job));
  result.errors = std::move(findings.errors);
  result.warnings = std::move(findings.warnings);
  return result;
}

std::optional<ControllingJob> controlling_job(const json& object) {
  for (const json& owner : member(member(object, "metadata"), "ownerReferences")) {
    if (member(owner, "controller") == true && text_member(owner, "kind") == kTrainJobKind &&
        text_member(owner, "apiVersion") == kApiVersion) {
      return ControllingJob{text_member(owner, "uid"), text_member(owner, "name")};
    }
  }
  return std::nullopt;
}

PodRecord record_of_pod(const json& object) {
  PodRecord record;
  auto worker = reconcile::worker_of_pod(object);
  if (!worker) return record;
  record.worker = std::move(*worker);
  if (auto owner = controlling_job(object)) {
    record.job_uid = std::move(owner->uid);
    record.job_name = std::move(owner->name);
  }
  return record;
}

bool wanted_of_pod(std::string_view section, std::string_view member) {
  if (section == "spec") return member == "nodeName";
  return kube::all_but_managers(section, member);
}

NodeRecord record_of_node(const json& object) {
  NodeRecord record;
  const json& status = member(object, "status");
  for (const json& condition : member(status, "conditions")) {
    if (text_member(condition, "type") == "Ready") {
      record.ready = text_member(condition, "status") == "True";
    }
  }
  const json& metadata = member(object, "metadata");
  record.node.name = text_member(metadata, "name");
  record.node.cordoned = member(member(object, "spec"), "unschedulable") == json(true);
  for (const auto& [name, value] : member(metadata, "labels").items()) {
    if (value.is_string()) record.node.labels.emplace(name, value.get<std::string>());
  }
  for (const auto& [name, value] : member(status, "allocatable").items()) {
    const auto amount =
        value.is_string() ? api::parse_quantity(value.get<std::string>()) : std::nullopt;
    if (amount) record.node.allocatable.emplace(name, *amount);
  }
  return record;
}

bool wanted_of_node(std::string_view section, std::string_view member) {
  if (section == "status") return member == "conditions" || member == "allocatable";
  return kube::all_but_managers(section, member);
}

}  // namespace tilewright::manager
