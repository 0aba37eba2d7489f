// The records that the informer caches store. They contain only what reconciling needs, because the
// caches may hold thousands of jobs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "controller/api/findings.h"
#include "controller/api/trainjob.h"
#include "controller/policy/observed.h"

namespace tilewright::controller {

// "namespace/name", the key of a job in the work queue.
std::string key_of(std::string_view namespace_name, std::string_view name);
struct NamespacedName {
  std::string namespace_name;
  std::string name;
};
NamespacedName parse_key(std::string_view key);

// Results of a job, for the metrics.
struct JobResults {
  api::RestartCounts restarts;
  std::map<std::string, double> evaluation;  // by metric: accuracy, f1
};

// The largest record of a job with its spec. The caches hold every job, and users decide how many
// there are: the spec of a larger one is dropped, and the job is invalid.
inline constexpr std::size_t kMaxJobBytes = 256 << 10;

// A TrainJob as CBOR (a seventh of the size of the JSON tree), without unused metadata.
struct JobRecord {
  std::vector<std::uint8_t> cbor;
  // Changes with the spec and with deletionTimestamp, but not with the status.
  struct SpecVersion {
    std::int64_t generation = 0;
    bool deleting = false;
    bool operator==(const SpecVersion&) const = default;
  } spec_version;
  std::string phase;                          // from the status; empty: not reconciled yet
  std::shared_ptr<const JobResults> results;  // null: never started
};
JobRecord record_of_job(const nlohmann::json& object);

struct DecodedJob {
  api::TrainJob job;               // with defaults applied
  nlohmann::json status;           // as stored; the base of status patches
  std::vector<FieldError> errors;  // normally refused by the API server
  std::vector<FieldError> warnings;
};
nlohmann::json tree_of(const JobRecord& record);
// Decodes the result of tree_of().
DecodedJob decode(const nlohmann::json& object);

// The TrainJob that owns an object, from its controller owner reference.
struct ControllingJob {
  std::string uid;
  std::string name;
};
std::optional<ControllingJob> controlling_job(const nlohmann::json& object);

// Identifies a job. A user can write any UID into an owner reference of their own namespace, so the
// UID alone does not.
struct JobId {
  std::string namespace_name;
  std::string uid;
  auto operator<=>(const JobId&) const = default;
};

struct PodRecord {
  // The owning TrainJob, which is in the pod's namespace. Empty: none, or the pod's labels name
  // another job.
  std::string job_uid;
  std::string job_name;
  policy::Worker worker;
};
PodRecord record_of_pod(const nlohmann::json& object);
// Field filter for record_of_pod(). Of the spec, the largest part of a pod, it keeps only nodeName.
bool keep_pod_field(std::string_view section, std::string_view member);

struct NodeRecord {
  bool ready = false;
  policy::Node node;
};
NodeRecord record_of_node(const nlohmann::json& object);
bool keep_node_field(std::string_view section, std::string_view member);

}  // namespace tilewright::controller
