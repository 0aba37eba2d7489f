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

#include "common/base/clock.h"
#include "common/contract/labels.h"
#include "controller/api/findings.h"
#include "controller/api/pytorchjob.h"
#include "controller/api/trainjob.h"
#include "controller/policy/observed.h"

namespace tilewright::controller {

// The kinds of jobs that the operator runs.
enum class JobKind { kTrainJob, kPyTorchJob };

// The key of a job in the work queue: "namespace/name", for a PyTorchJob
// "pytorchjobs/namespace/name".
std::string key_of(std::string_view namespace_name, std::string_view name,
                   JobKind kind = JobKind::kTrainJob);
struct JobAddress {
  std::string namespace_name;
  std::string name;
  JobKind kind = JobKind::kTrainJob;
};
JobAddress parse_key(std::string_view key);

// Results of a job, for the metrics.
struct JobResults {
  api::RestartCounts restarts;
  std::map<std::string, double> evaluation;  // by metric: accuracy, f1
};

// The largest record of a job with its spec. The caches hold every job, and users decide how many
// there are: the spec of a larger one is dropped, and the job is invalid.
inline constexpr std::size_t kMaxJobBytes = 256 << 10;

// A job as CBOR (a seventh of the size of the JSON tree), without unused metadata.
struct JobRecord {
  bool managed = true;  // false: another operator runs the job; the other members are empty
  std::vector<std::uint8_t> cbor;
  // Changes with the spec and with deletionTimestamp, but not with the status.
  struct SpecVersion {
    std::int64_t generation = 0;
    bool deleting = false;
    bool operator==(const SpecVersion&) const = default;
  } spec_version;
  std::string phase;                          // from the status; empty: not reconciled yet
  std::shared_ptr<const JobResults> results;  // null: never started
  std::optional<WallTime> failed_at;          // nullopt: not Failed
};
JobRecord record_of_job(const nlohmann::json& object);

// The PyTorchJobs that the operator runs.
struct PyTorchJobSelection {
  bool enabled = false;
  api::KubeflowOperator kubeflow = api::KubeflowOperator::kAbsent;  // see is_managed_here()
  // A value of spec.runPolicy.managedBy that names this operator, beside kPyTorchJobManager; empty:
  // none.
  std::string manager;
};
JobRecord record_of_pytorch_job(const nlohmann::json& object, const PyTorchJobSelection& selection);

struct DecodedJob {
  // With defaults applied. Of a PyTorchJob: the view of controller/cluster/pytorch_view.h.
  api::TrainJob job;
  policy::JobTraits traits;
  std::shared_ptr<const api::PyTorchJob> pytorch;  // null: a TrainJob
  nlohmann::json status;                           // as stored; the base of status patches
  std::vector<FieldError> errors;                  // normally refused by the API server
  std::vector<FieldError> warnings;
};
nlohmann::json tree_of(const JobRecord& record);
// Decodes the result of tree_of(). `gang_scheduler`: of the operator
// (controller/cluster/gang_scheduler.h).
DecodedJob decode(const nlohmann::json& object, JobKind kind = JobKind::kTrainJob,
                  const std::string& gang_scheduler = {});

// The job that owns an object, from its controller owner reference.
struct ControllingJob {
  std::string uid;
  std::string name;
  JobKind kind = JobKind::kTrainJob;
};
std::optional<ControllingJob> controlling_job(const nlohmann::json& object);

// Identifies a job. A user can write any UID into an owner reference of their own namespace, so the
// UID alone does not.
struct JobId {
  std::string namespace_name;
  std::string uid;
  JobKind kind = JobKind::kTrainJob;
  auto operator<=>(const JobId&) const = default;  // NOLINT: clang-tidy 14 sees a null pointer
};

struct PodRecord {
  // The owning job, which is in the pod's namespace. Empty: none, or the pod's labels name another
  // job.
  std::string job_uid;
  std::string job_name;
  JobKind job_kind = JobKind::kTrainJob;
  policy::Worker worker;
  // Numeric addresses of the pod alone; empty if it has ended, has none yet, or uses its node's.
  std::vector<std::string> addresses;
  bool uses_tcpstore = false;  // torchrun's agents use the operator's TCPStore
};
PodRecord record_of_pod(const nlohmann::json& object);
// Field filter for record_of_pod(). Of the spec, the largest part of a pod, it keeps only nodeName
// and hostNetwork.
bool keep_pod_field(std::string_view section, std::string_view member);

struct NodeRecord {
  policy::NodeState state = policy::NodeState::kNotReady;
  policy::Node node;
};
NodeRecord record_of_node(const nlohmann::json& object);
bool keep_node_field(std::string_view section, std::string_view member);

}  // namespace tilewright::controller
