#include "controller/operator/records.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "common/contract/labels.h"
#include "common/contract/training_report.h"
#include "common/json/members.h"
#include "common/json/timestamp.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/validate.h"
#include "controller/client/response_json.h"
#include "controller/cluster/gang_scheduler.h"
#include "controller/cluster/observe_pod.h"
#include "controller/cluster/pytorch_status.h"
#include "controller/cluster/pytorch_view.h"
#include "controller/policy/job_state.h"

namespace tilewright::controller {

using nlohmann::json;

namespace {

std::int64_t integer_member(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_number_integer() ? value.get<std::int64_t>() : 0;
}

std::shared_ptr<const JobResults> results_of(const json& status) {
  // nominalWorkers is set at the first start. Jobs that never started have no results.
  if (integer_member(status, "nominalWorkers") == 0) return nullptr;
  auto results = std::make_shared<JobResults>();
  const json& restarts = member(status, "restarts");
  results->restarts = {integer_member(restarts, "program"),
                       integer_member(restarts, "infrastructure"),
                       integer_member(restarts, "outOfMemory")};
  for (const auto& [name, value] : member(member(status, "progress"), "metrics").items()) {
    const auto result = training_report::evaluation_result(name);
    if (result && value.is_number()) results->evaluation.emplace(*result, value.get<double>());
  }
  return results;
}

std::optional<WallTime> failure_time_of(const json& status) {
  if (string_member(status, "phase") != api::to_string(api::Phase::kFailed)) return std::nullopt;
  return parse_timestamp(string_member(status, "completionTime"));
}

}  // namespace

std::string key_of(std::string_view namespace_name, std::string_view name, JobKind kind) {
  std::string key;
  if (kind == JobKind::kPyTorchJob) key = std::string(kPyTorchJobPlural) + '/';
  key += namespace_name;
  key += '/';
  key += name;
  return key;
}

JobAddress parse_key(std::string_view key) {
  JobAddress address;
  std::size_t slash = key.find('/');
  if (key.find('/', slash + 1) != std::string_view::npos) {
    address.kind = JobKind::kPyTorchJob;
    key.remove_prefix(slash + 1);
    slash = key.find('/');
  }
  address.namespace_name = key.substr(0, slash);
  address.name = key.substr(slash + 1);
  return address;
}

namespace {

// `own_status`: the status that the policies wrote.
JobRecord make_record(const json& object, const json& own_status) {
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
  std::vector<std::uint8_t> cbor = json::to_cbor(kept);
  if (cbor.size() > kMaxJobBytes) {
    kept["spec"] = fmt::format("(a job of more than {} KiB)", kMaxJobBytes >> 10);
    cbor = json::to_cbor(kept);
  }
  JobRecord record{
      true,
      std::move(cbor),
      {integer_member(from, "generation"), !member(from, "deletionTimestamp").is_null()},
      string_member(own_status, "phase"),
      results_of(own_status),
      failure_time_of(own_status)};
  record.cbor.shrink_to_fit();
  return record;
}

// The warnings of the validation, and those about schedulers.
template <typename Job>
std::vector<FieldError> warnings_of(api::Findings& findings, const std::string& gang_scheduler,
                                    const Job& job) {
  std::vector<FieldError> warnings = std::move(findings.warnings);
  for (FieldError& warning : cluster::find_other_schedulers(gang_scheduler, job)) {
    add_error(warnings, std::move(warning));
  }
  return warnings;
}

DecodedJob decode_pytorch(const json& object, const std::string& gang_scheduler) {
  json restored = object;
  cluster::restore_state(restored);
  api::DecodedPyTorchJob decoded = api::decode_pytorchjob(restored);
  api::apply_defaults(decoded.job);
  cluster::apply_gang_scheduler(gang_scheduler, decoded.job);
  cluster::JobView view = cluster::view_of(decoded.job);
  DecodedJob result;
  result.job = std::move(view.job);
  result.traits = std::move(view.traits);
  result.status = object.value("status", json::object());
  result.errors = std::move(decoded.errors);
  if (result.errors.empty()) {
    api::Findings findings = api::validate(decoded.job);
    result.errors = std::move(findings.errors);
    result.warnings = warnings_of(findings, gang_scheduler, decoded.job);
  }
  result.pytorch = std::make_shared<const api::PyTorchJob>(std::move(decoded.job));
  return result;
}

}  // namespace

JobRecord record_of_job(const json& object) {
  return make_record(object, member(object, "status"));
}

JobRecord record_of_pytorch_job(const json& object, const PyTorchJobSelection& selection) {
  const std::string manager =
      string_member(member(member(object, "spec"), "runPolicy"), "managedBy");
  api::PyTorchJob named;
  named.spec.run_policy.managed_by = manager;
  const bool named_here = !selection.manager.empty() && manager == selection.manager;
  if (!named_here && !api::is_managed_here(named, selection.kubeflow)) {
    JobRecord record;
    record.managed = false;
    return record;
  }
  json status = {{"status", member(object, "status")}};
  cluster::restore_state(status);
  return make_record(object, member(status["status"], "tilewright"));
}

json tree_of(const JobRecord& record) { return json::from_cbor(record.cbor); }

DecodedJob decode(const json& object, JobKind kind, const std::string& gang_scheduler) {
  if (kind == JobKind::kPyTorchJob) return decode_pytorch(object, gang_scheduler);
  api::DecodeResult decoded = api::decode_object(object);
  api::apply_defaults(decoded.job);
  cluster::apply_gang_scheduler(gang_scheduler, decoded.job);
  DecodedJob result;
  result.job = std::move(decoded.job);
  result.status = object.value("status", json::object());
  result.errors = std::move(decoded.errors);
  if (!result.errors.empty()) return result;
  api::Findings findings = api::validate(result.job);
  findings.append(api::validate_for_cluster(result.job));
  result.errors = std::move(findings.errors);
  result.warnings = warnings_of(findings, gang_scheduler, result.job);
  return result;
}

std::optional<ControllingJob> controlling_job(const json& object) {
  for (const json& owner : member(member(object, "metadata"), "ownerReferences")) {
    if (member(owner, "controller") != true) continue;
    const std::string kind = string_member(owner, "kind");
    const std::string version = string_member(owner, "apiVersion");
    const bool pytorch = kind == kPyTorchJobKind && version == kPyTorchJobApiVersion;
    if (pytorch || (kind == kTrainJobKind && version == kApiVersion)) {
      return ControllingJob{string_member(owner, "uid"), string_member(owner, "name"),
                            pytorch ? JobKind::kPyTorchJob : JobKind::kTrainJob};
    }
  }
  return std::nullopt;
}

// The address of an ended pod may belong to another pod, and a node's to any program on it.
std::vector<std::string> addresses_of(const json& pod, const policy::Worker& worker) {
  if (policy::has_ended(worker)) return {};
  if (member(member(pod, "spec"), "hostNetwork") == json(true)) return {};
  std::vector<std::string> addresses;
  const json& list = member(member(pod, "status"), "podIPs");
  for (const json& each : list) {
    if (std::string address = string_member(each, "ip"); !address.empty()) {
      addresses.push_back(std::move(address));
    }
  }
  return addresses;
}

PodRecord record_of_pod(const json& object) {
  PodRecord record;
  auto worker = cluster::worker_of_pod(object);
  if (!worker) return record;
  record.worker = std::move(*worker);
  auto owner = controlling_job(object);
  const json& pod_labels = member(member(object, "metadata"), "labels");
  const bool agree = owner && string_member(pod_labels, labels::kJobUid) == owner->uid &&
                     string_member(pod_labels, labels::kJobName) == owner->name;
  if (!agree) return record;
  record.job_uid = std::move(owner->uid);
  record.job_name = std::move(owner->name);
  record.job_kind = owner->kind;
  if (owner->kind == JobKind::kPyTorchJob) {
    record.addresses = addresses_of(object, record.worker);
    record.uses_tcpstore =
        member(member(member(object, "metadata"), "annotations"), annotations::kTcpStore)
            .is_string();
  }
  return record;
}

bool keep_pod_field(std::string_view section, std::string_view member) {
  if (section == "spec") return member == "nodeName" || member == "hostNetwork";
  return kube::exclude_managed_fields(section, member);
}

NodeRecord record_of_node(const json& object) {
  NodeRecord record;
  const json& status = member(object, "status");
  for (const json& condition : member(status, "conditions")) {
    if (string_member(condition, "type") == "Ready") {
      const std::string ready = string_member(condition, "status");
      if (ready == "True") record.state = policy::NodeState::kReady;
      if (ready == "Unknown") record.state = policy::NodeState::kUnreachable;
    }
  }
  const json& metadata = member(object, "metadata");
  record.node.name = string_member(metadata, "name");
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

bool keep_node_field(std::string_view section, std::string_view member) {
  if (section == "status") return member == "conditions" || member == "allocatable";
  return kube::exclude_managed_fields(section, member);
}

}  // namespace tilewright::controller
