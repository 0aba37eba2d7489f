#include "controller/manager/preflight.h"

#include <fmt/format.h>

#include <utility>

#include "controller/manager/records.h"
#include "controller/manager/resources.h"
#include "controller/reconcile/objects.h"
#include "controller/reconcile/placement.h"

namespace tilewright::manager {
namespace {

using kube::Problem;
using nlohmann::json;

constexpr const char* kNoUid = "00000000-0000-0000-0000-000000000000";
constexpr const char* kSomeAddress = "10.0.0.1:29400";

// Said by the authorizer. What admission forbids (quotas, Pod Security) is worded otherwise, under
// the same code and reason.
bool is_of_the_askers_rights(const kube::ApiError& error) {
  return error.problem == Problem::kForbidden &&
         error.message.find("is forbidden: User \"") != std::string::npos;
}

void leave_open(const std::string& what, const kube::ApiError& error, Preflight& preflight) {
  preflight.unknown.push_back(
      is_of_the_askers_rights(error)
          ? fmt::format("whether {}, which you may not ask: {}", what, error.message)
          : fmt::format("whether {}: {}", what, error.sentence()));
}

// An answer that says something about the job is an obstacle, any other that nothing is known.
void sort_in(const kube::ApiError& error, const std::string& what, Preflight& preflight) {
  const bool about_the_job =
      error.problem == Problem::kInvalid || error.problem == Problem::kAlreadyExists ||
      (error.problem == Problem::kForbidden && !is_of_the_askers_rights(error));
  if (about_the_job) {
    preflight.obstacles.push_back(
        fmt::format("the API server would not take {}: {}", what, error.message));
  } else {
    leave_open("the API server takes " + what, error, preflight);
  }
}

void ask_for_job(kube::Client& client, const std::string& space, json tree, const net::Wait& wait,
                 Preflight& preflight) {
  tree["metadata"]["namespace"] = space;
  const auto taken = client.try_create(resource::train_jobs(), space, tree, wait);
  if (taken.is(Problem::kNotFound)) {
    preflight.obstacles.push_back(
        fmt::format("the cluster knows no {}, or no namespace {}: is the operator installed?",
                    kTrainJobKind, space));
  } else if (!taken) {
    sort_in(taken.error(), "the job", preflight);
  }
}

void ask_for_pod(kube::Client& client, const std::string& space, api::TrainJob job,
                 const net::Wait& wait, Preflight& preflight) {
  job.metadata.namespace_name = space;
  job.metadata.uid = kNoUid;
  if (job.metadata.name.empty()) job.metadata.name = job.metadata.generate_name + "xxxxx";
  json pod = reconcile::build_pod(job, 0, {kSomeAddress, ""});
  // Of a job that is not there yet.
  pod["metadata"].erase("ownerReferences");
  const auto taken = client.try_create(kube::resource::pods(), space, pod, wait);
  if (!taken && !taken.is(Problem::kNotFound)) {
    sort_in(taken.error(), "a worker's pod", preflight);
  }
}

void ask_for_nodes(kube::Client& client, const api::TrainJob& job, const net::Wait& wait,
                   Preflight& preflight) {
  const auto listed = client.list_all(kube::resource::nodes(), {}, wait);
  if (!listed) return leave_open("a node is large enough", listed.error(), preflight);
  std::vector<reconcile::Node> nodes;
  for (const json& node : *listed) nodes.push_back(record_of_node(node).node);
  if (const auto obstacle = reconcile::find_no_node(job, nodes)) {
    preflight.obstacles.push_back(obstacle->message);
  }
}

void ask_for_claims(kube::Client& client, const std::string& space, const api::TrainJob& job,
                    const net::Wait& wait, Preflight& preflight) {
  for (const auto& [name, volume] : reconcile::claims_of(job)) {
    const auto found = client.get(kube::resource::claims(), space, name, wait);
    if (found.is(Problem::kNotFound)) {
      preflight.obstacles.push_back(
          fmt::format("there is no PersistentVolumeClaim {} in the namespace {}, which volume {} "
                      "names",
                      name, space, volume));
    } else if (!found) {
      leave_open(fmt::format("the claim {} exists", name), found.error(), preflight);
    }
  }
}

}  // namespace

Preflight ask_cluster(kube::Client& client, const std::string& namespace_name, const json& tree,
                      const api::TrainJob& job, const net::Wait& wait) {
  Preflight preflight;
  ask_for_job(client, namespace_name, tree, wait, preflight);
  ask_for_pod(client, namespace_name, job, wait, preflight);
  ask_for_nodes(client, job, wait, preflight);
  ask_for_claims(client, namespace_name, job, wait, preflight);
  return preflight;
}

}  // namespace tilewright::manager
