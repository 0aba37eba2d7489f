// Settings of the operator, from the command line and the environment.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/contract/ports.h"
#include "common/net/address.h"
#include "controller/client/elector.h"
#include "controller/operator/records.h"

namespace tilewright::controller {

struct Options {
  std::string identity;        // unique to this process; never reused
  std::string instance;        // pod name of this replica, for events
  std::string own_namespace;   // namespace of the Lease, the master key and the rendezvous Service
  std::string jobs_namespace;  // namespace of the jobs; empty: all namespaces

  bool elect_leader = true;
  std::string lease_name = "tilewright-controller";
  kube::ElectorSettings elector;  // `identity` above overrides elector.identity
  std::string master_key_name = "tilewright-master-key";

  // Listen address of the rendezvous while this replica is the leader.
  net::Address rendezvous_listen{"", kRendezvousPort};
  // The rendezvous address for workers. Without a host: the cluster IP of the Service, whose
  // EndpointSlice points to `pod_address`.
  net::Address rendezvous_address{};
  std::string rendezvous_service = "tilewright-rendezvous";
  std::string pod_address;  // numeric IP address of this replica

  net::Address metrics_listen{"", kControllerMetricsPort};
  net::Address health_listen{"", kControllerHealthPort};
  // Namespaces that may reach the metrics of workers, in addition to that of the job; empty: all.
  std::vector<std::string> metrics_namespaces;

  // The gang scheduler of all jobs (controller/cluster/gang_scheduler.h); empty: none.
  std::string gang_scheduler;

  PyTorchJobSelection pytorch_jobs;
  // Whether torchrun's agents of PyTorchJobs rendezvous through a TCPStore of the operator.
  bool pytorchjob_store = true;
  net::Address tcpstore_listen{"", kTcpStorePort};
  // The address for the agents. Without a host: the cluster IP of the Service; none with
  // `rendezvous_address`, because NAT would hide the addresses by which the store knows the pods.
  net::Address tcpstore_address{};
  bool serves_tcpstore() const {
    return pytorch_jobs.enabled && pytorchjob_store &&
           (rendezvous_address.host.empty() || !tcpstore_address.host.empty());
  }

  // Interval of the reconcile of all jobs, which also recreates deleted objects that are not
  // watched.
  Duration resync_period = std::chrono::minutes(10);
  int reconcilers = 16;        // concurrent reconciles
  int parallel_requests = 32;  // concurrent API requests of all jobs, mainly to create pods
};

}  // namespace tilewright::controller
