// What the informers' caches keep of an object: as little as reconciling needs, for thousands of
// jobs stay in memory at once.
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
#include "controller/reconcile/observed.h"

namespace tilewright::manager {

// "namespace/name": how the work queue speaks of a job.
std::string key_of(std::string_view namespace_name, std::string_view name);
struct JobAddress {
  std::string namespace_name;
  std::string name;
};
JobAddress address_of(std::string_view key);

// What has come of a job, for the metrics.
struct JobResults {
  api::RestartCounts restarts;
  std::map<std::string, double> evaluation;  // by metric: accuracy, f1
};

// A TrainJob as CBOR (a seventh of its size as a tree), without what no decision hangs on.
struct JobRecord {
  std::vector<std::uint8_t> cbor;
  // Changes with the spec and when the deletion begins, but not with the status.
  struct Wish {
    std::int64_t generation = 0;
    bool deleting = false;
    bool operator==(const Wish&) const = default;
  } wish;
  std::string phase;                          // of its status; empty: nobody has looked at it yet
  std::shared_ptr<const JobResults> results;  // null: it has never begun to run
};
JobRecord record_of_job(const nlohmann::json& object);

struct DecodedJob {
  api::TrainJob job;                    // with defaults applied
  nlohmann::json status;                // as it stands there, which a patch of it is reckoned from
  std::vector<api::FieldError> errors;  // the API server should have refused it
  std::vector<api::FieldError> warnings;
};
nlohmann::json tree_of(const JobRecord& record);
// Of such a tree.
DecodedJob decode(const nlohmann::json& object);

// The TrainJob that an object belongs to, by its controlling owner reference: labels anybody may
// set.
struct ControllingJob {
  std::string uid;
  std::string name;
};
std::optional<ControllingJob> controlling_job(const nlohmann::json& object);

struct PodRecord {
  std::string job_uid;   // of its controlling job; empty: it has none
  std::string job_name;  // of that TrainJob
  reconcile::Worker worker;
};
PodRecord record_of_pod(const nlohmann::json& object);
// What that reads of a pod: of its spec, the most of its text, the node's name alone.
bool wanted_of_pod(std::string_view section, std::string_view member);

struct NodeRecord {
  bool ready = false;
  reconcile::Node node;
};
NodeRecord record_of_node(const nlohmann::json& object);
bool wanted_of_node(std::string_view section, std::string_view member);

}  // namespace tilewright::manager
