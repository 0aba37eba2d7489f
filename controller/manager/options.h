// What the controller is told on its command line.
#pragma once

#include <chrono>
#include <string>

#include "common/contract/ports.h"
#include "common/net/address.h"
#include "controller/kube/elector.h"

namespace tilewright::manager {

struct Options {
  std::string identity;        // of this process: unique among all that ever were
  std::string instance;        // of this replica, for events: its pod's name
  std::string own_namespace;   // of the Lease, the master key and the rendezvous' Service
  std::string jobs_namespace;  // of the jobs that are looked after; empty: all

  bool elect_leader = true;
  std::string lease_name = "tilewright-controller";
  kube::ElectorSettings elector;  // its identity is the one above
  std::string master_key_name = "tilewright-master-key";

  // Where the rendezvous listens while this replica leads.
  net::Address rendezvous_listen{"", kRendezvousPort};
  // What workers are given. With a host: that, as it is. Without: the cluster IP of the Service,
  // which is led to `pod_address`.
  net::Address rendezvous_address{};
  std::string rendezvous_service = "tilewright-rendezvous";
  std::string pod_address;  // numeric, of this replica

  net::Address metrics_listen{"", kControllerMetricsPort};
  net::Address health_listen{"", kControllerHealthPort};

  // Between two looks at everything: in case an event was lost all the same, and to find what
  // somebody has deleted that is not watched.
  Duration resync_period = std::chrono::minutes(10);
  int reconcilers = 16;        // jobs looked at side by side
  int parallel_requests = 32;  // of all jobs together, for pods
};

}  // namespace tilewright::manager
