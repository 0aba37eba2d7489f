// The objects of a job in a cluster, as JSON ready to be sent: pure functions of the job.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "controller/api/trainjob.h"
#include "controller/reconcile/plan.h"

namespace tilewright::reconcile {

// All objects stand in the job's namespace, carry its labels and belong to it; the job is valid,
// defaulted and has a name and a UID.

// What pods are given of the operator that makes them.
struct PodSetting {
  std::string rendezvous;  // host:port of the coordinator
  std::string key_id;      // of the job's key that it takes for proof
};

// A worker's pod: Guaranteed, never restarted in place, fit for restricted Pod Security, with the
// manifest's overlay laid on.
nlohmann::json build_pod(const api::TrainJob& job, std::int64_t index, const PodSetting& setting);

// The PersistentVolumeClaims of a worker's pod, the overlay's among them; each with the volume that
// names it.
std::map<std::string, std::string> claims_of(const api::TrainJob& job);

// Headless; gives the workers names that a person may use. Nothing of ours resolves them.
nlohmann::json build_service(const api::TrainJob& job);

// The job's key (hexadecimal), which a worker proves to the coordinator that it knows.
nlohmann::json build_secret(const api::TrainJob& job, std::string_view key,
                            const std::string& key_id);

// Lets nobody but the job's own pods reach the workers' transport, and anybody their metrics.
nlohmann::json build_network_policy(const api::TrainJob& job);

// Volcano's PodGroup where spec.worker.schedulerName is volcano, else that of scheduler-plugins.
nlohmann::json build_pod_group(const api::TrainJob& job, const Gang& gang);

std::string service_name(const api::TrainJob& job);
// Another key is another Secret: pods that run keep theirs.
std::string secret_name(const api::TrainJob& job, const std::string& key_id);
std::string network_policy_name(const api::TrainJob& job);
std::string pod_group_name(const api::TrainJob& job);

}  // namespace tilewright::reconcile
