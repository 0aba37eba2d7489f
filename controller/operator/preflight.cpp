#include "controller/operator/preflight.h"

#include <fmt/format.h>

#include <utility>

#include "controller/cluster/objects.h"
#include "controller/operator/records.h"
#include "controller/operator/resources.h"
#include "controller/policy/messages.h"
#include "controller/policy/placement.h"

namespace tilewright::controller {
namespace {

using kube::ErrorKind;
using nlohmann::json;

constexpr const char* kPlaceholderAddress = "10.0.0.1:29400";

// True for a refusal by the RBAC authorizer. Admission plugins (quotas, Pod Security) refuse with
// the same code and reason but another message.
bool is_rbac_denial(const kube::ApiError& error) {
  return error.kind == ErrorKind::kForbidden &&
         error.message.find("is forbidden: User \"") != std::string::npos;
}

void add_unchecked(const std::string& what, const kube::ApiError& error, Preflight& preflight) {
  if (is_rbac_denial(error)) {
    preflight.not_permitted.push_back(
        fmt::format("whether {}: no permission to check it: {}", what, error.message));
  } else {
    preflight.failed.push_back(fmt::format("whether {}: {}", what, error.sentence()));
  }
}

// Errors caused by the job are reported as errors, all others as checks without a result.
void classify_error(const kube::ApiError& error, const std::string& what, Preflight& preflight) {
  const bool about_the_job = error.kind == ErrorKind::kInvalid ||
                             error.kind == ErrorKind::kAlreadyExists ||
                             (error.kind == ErrorKind::kForbidden && !is_rbac_denial(error));
  if (about_the_job) {
    preflight.errors.push_back(
        fmt::format("the API server would reject {}: {}", what, error.message));
  } else {
    add_unchecked("the API server accepts " + what, error, preflight);
  }
}

void check_job(kube::Client& client, const std::string& namespace_name, json tree,
               const net::Wait& wait, Preflight& preflight) {
  tree["metadata"]["namespace"] = namespace_name;
  const auto created = client.dry_run_create(resource::train_jobs(), namespace_name, tree, wait);
  preflight.job_accepted = created.ok();
  if (created.is(ErrorKind::kNotFound)) {
    preflight.errors.push_back(
        fmt::format("the cluster has no {} CRD or no namespace {}: is the operator installed?",
                    kTrainJobKind, namespace_name));
  } else if (!created) {
    classify_error(created.error(), "the job", preflight);
  }
}

void check_pod(kube::Client& client, const std::string& namespace_name, api::TrainJob job,
               const net::Wait& wait, Preflight& preflight) {
  job.metadata.namespace_name = namespace_name;
  job.metadata.uid = api::kSampleUid;
  job.metadata.name = api::sample_name(job.metadata);
  json pod = cluster::build_pod(job, 0, {kPlaceholderAddress, ""});
  // The owner does not exist yet.
  pod["metadata"].erase("ownerReferences");
  const auto created = client.dry_run_create(kube::resource::pods(), namespace_name, pod, wait);
  if (!created && !created.is(ErrorKind::kNotFound)) {
    classify_error(created.error(), "a worker's pod", preflight);
  }
}

void check_nodes(kube::Client& client, const api::TrainJob& job, const net::Wait& wait,
                 Preflight& preflight) {
  const auto listed = client.list_all(kube::resource::nodes(), {}, wait);
  if (!listed) return add_unchecked("a node is large enough", listed.error(), preflight);
  std::vector<policy::Node> nodes;
  for (const json& node : *listed) nodes.push_back(record_of_node(node).node);
  if (const auto blocked_reason = policy::find_unschedulable_reason(job, nodes)) {
    preflight.errors.push_back(policy::message_of(job, *blocked_reason).text);
  }
}

void check_claims(kube::Client& client, const std::string& namespace_name, const api::TrainJob& job,
                  const net::Wait& wait, Preflight& preflight) {
  for (const auto& [name, volume] : cluster::claims_of(job)) {
    const auto found =
        client.get(kube::resource::persistent_volume_claims(), namespace_name, name, wait);
    if (found.is(ErrorKind::kNotFound)) {
      preflight.errors.push_back(
          fmt::format("PersistentVolumeClaim {} of volume {} does not exist in namespace {}", name,
                      volume, namespace_name));
    } else if (!found) {
      add_unchecked(fmt::format("PersistentVolumeClaim {} exists", name), found.error(), preflight);
    }
  }
}

}  // namespace

Preflight run_preflight(kube::Client& client, const std::string& namespace_name, const json& tree,
                        const api::TrainJob& job, const net::Wait& wait) {
  Preflight preflight;
  check_job(client, namespace_name, tree, wait, preflight);
  check_pod(client, namespace_name, job, wait, preflight);
  check_nodes(client, job, wait, preflight);
  check_claims(client, namespace_name, job, wait, preflight);
  return preflight;
}

}  // namespace tilewright::controller
