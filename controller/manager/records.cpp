#include "controller/manager/records.h"

#include <iterator>
#include <utility>

#include "common/contract/labels.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/validate.h"
#include "controller/reconcile/observe_pod.h"

namespace tilewright::manager {
namespace {

using nlohmann::json;

const json& member(const json& object, const char* name) {
  static const json kNothing = json::object();
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? kNothing : *found;
}

std::string text(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
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
  json& metadata = kept["metadata"] = json::object();
  for (const char* name : {"name", "namespace", "uid", "resourceVersion", "generation",
                           "creationTimestamp", "deletionTimestamp"}) {
    const json& from = member(object, "metadata");
    if (from.contains(name)) metadata[name] = from[name];
  }
  JobRecord record{json::to_cbor(kept), text(member(object, "status"), "phase")};
  record.cbor.shrink_to_fit();
  return record;
}

json tree_of(const JobRecord& record) { return json::from_cbor(record.cbor); }

DecodedJob decode(const json& object) {
  api::Decoded decoded = api::decode_object(object);
  api::apply_defaults(decoded.job);
  DecodedJob result{std::move(decoded.job), member(object, "status"), std::move(decoded.errors)};
  if (!result.errors.empty()) return result;
  api::Findings findings = api::validate(result.job);
  findings.append(api::validate_for_cluster(result.job));
  result.errors = std::move(findings.errors);
  return result;
}

PodRecord record_of_pod(const json& object) {
  PodRecord record;
  auto worker = reconcile::worker_of_pod(object);
  if (!worker) return record;
  record.worker = std::move(*worker);
  for (const json& owner : member(member(object, "metadata"), "ownerReferences")) {
    if (member(owner, "controller") != json(true) || text(owner, "kind") != kTrainJobKind ||
        text(owner, "apiVersion") != kApiVersion) {
      continue;
    }
    record.job_uid = text(owner, "uid");
    record.job_name = text(owner, "name");
  }
  return record;
}

NodeRecord record_of_node(const json& object) {
  NodeRecord record;
  const json& status = member(object, "status");
  for (const json& condition : member(status, "conditions")) {
    if (text(condition, "type") == "Ready") record.ready = text(condition, "status") == "True";
  }
  const json& metadata = member(object, "metadata");
  record.node.name = text(metadata, "name");
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

}  // namespace tilewright::manager
