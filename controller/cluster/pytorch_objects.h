// Builds the Kubernetes objects of a PyTorchJob as JSON, as Kubeflow's training operator v1 does.
// docs/pytorchjobs.md lists the differences. Pure functions of the job, which must be
// valid, with defaults applied, a name and a UID.
//
// Sources: github.com/kubeflow/training-operator v1.9, pkg/controller.v1/pytorch (envvar.go,
// master.go, elastic.go, hpa.go) and pkg/controller.v1/common (pod.go, service.go, scheduling.go).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/pytorchjob.h"
#include "controller/cluster/objects.h"
#include "controller/policy/plan.h"

namespace tilewright::cluster {

// The replica that has a worker index: the master is worker 0 if there is one.
struct Replica {
  bool is_master = false;
  int index = 0;                                  // among the replicas of its type
  const api::PyTorchReplicaSpec* spec = nullptr;  // null: the job has no such replicas

  const char* type() const { return is_master ? api::kMasterType : api::kWorkerType; }
};
Replica replica_of(const api::PyTorchJob& job, int worker_index);

// mrpc-worker-0, the name of the replica's pod and Service.
std::string replica_name(const api::PyTorchJob& job, const Replica& replica);

// "training.kubeflow.org/job-name=mrpc,...", the selector of the pods of a replica type.
std::string replica_selector(const api::PyTorchJob& job, std::string_view type);

// Whether torchrun's agents rendezvous through the operator's TCPStore: the job has an
// elasticPolicy with the backend c10d and sets neither rdzvHost, rdzvPort nor standalone. A job
// whose restartPolicy does not restart agents that lose the store (Never) would fail at a change of
// the operator's leader, and the store does not know the agents of hostNetwork pods by their
// address, so these use worker 0.
bool uses_operator_tcpstore(const api::PyTorchJob& job);

// PodOptions::tcpstore is used if uses_operator_tcpstore().
nlohmann::json build_pod(const api::PyTorchJob& job, int worker_index, const PodOptions& options);

// The headless Service of one replica, which gives its pod the DNS name of MASTER_ADDR and
// PET_RDZV_ENDPOINT.
nlohmann::json build_service(const api::PyTorchJob& job, int worker_index);

nlohmann::json build_secret(const api::PyTorchJob& job, std::string_view key,
                            const std::string& key_id);

nlohmann::json build_pod_group(const api::PyTorchJob& job, const policy::Gang& gang,
                               const std::string& gang_scheduler = {});

// The HorizontalPodAutoscaler of elasticPolicy.metrics, which must be set.
nlohmann::json build_autoscaler(const api::PyTorchJob& job);
bool has_autoscaler(const api::PyTorchJob& job);

}  // namespace tilewright::cluster
