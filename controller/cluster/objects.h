// Builds the Kubernetes objects of a job as JSON. Pure functions of the job.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/trainjob.h"
#include "controller/policy/plan.h"

namespace tilewright::cluster {

// All objects are in the job's namespace, carry its labels and are owned by it. The job must be
// valid, with defaults applied, a name and a UID.

// Labels and owner reference of an object that belongs to a job of this kind.
nlohmann::json metadata_of(const char* api_version, const char* kind, const api::ObjectMeta& job,
                           const std::string& name);

// The Secret that holds a job's key, in hexadecimal.
nlohmann::json key_secret(nlohmann::json metadata, std::string_view key);

// Settings of the operator that a pod needs.
struct PodOptions {
  std::string rendezvous;  // host:port of the coordinator
  std::string key_id;      // id of the job key that the coordinator accepts
  policy::NodeConstraint node_constraint = {};
  // host:port of the TCPStore for torchrun's agents of a PyTorchJob; empty: that of its worker 0.
  std::string tcpstore = {};
  std::string gang_scheduler = {};  // of the operator (gang_scheduler.h); empty: none
};

// Where a worker's first process serves /metrics: at all addresses of its pod, IPv4 and IPv6.
std::string worker_metrics_address();

// Adds the constraint to the required node affinity of a pod's spec.
void constrain_nodes(const policy::NodeConstraint& constraint, nlohmann::json& spec);

// A worker's pod: QoS class Guaranteed, never restarted in place, within the restricted Pod
// Security Standard, with spec.worker.podTemplate merged in.
nlohmann::json build_pod(const api::TrainJob& job, std::int64_t index, const PodOptions& options);

// The PersistentVolumeClaims of a worker's pod, including those of spec.worker.podTemplate, each
// with the name of its volume.
std::map<std::string, std::string> claims_of(const api::TrainJob& job);

// A headless Service. It gives the workers DNS names for users; no Tilewright program resolves
// them.
nlohmann::json build_service(const api::TrainJob& job);

// `key`: the job key in hexadecimal, with which workers authenticate to the coordinator.
nlohmann::json build_secret(const api::TrainJob& job, std::string_view key,
                            const std::string& key_id);

// Only the job's own pods can reach the workers' transport ports. Their metrics can be reached from
// the job's namespace and `metrics_namespaces`; from everywhere if this is empty.
nlohmann::json build_network_policy(const api::TrainJob& job,
                                    const std::vector<std::string>& metrics_namespaces);

// `gang_scheduler`: PodOptions::gang_scheduler.
nlohmann::json build_pod_group(const api::TrainJob& job, const policy::Gang& gang,
                               const std::string& gang_scheduler = {});

// The volume of the job key. Manifests must not use the prefix "tilewright-".
inline constexpr const char* kKeyVolume = "tilewright-job-key";

std::string service_name(const api::TrainJob& job);
// A new key gets a new Secret, so running pods keep the Secret of their key.
std::string secret_name(const api::ObjectMeta& job, const std::string& key_id);
std::string network_policy_name(const api::TrainJob& job);
std::string pod_group_name(const api::TrainJob& job);

}  // namespace tilewright::cluster
