// The spec of a coordination.k8s.io/v1 Lease, as leader election uses it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/clock.h"

namespace tilewright::kube {

struct LeaseRecord {
  std::string holder;  // holderIdentity; empty: nobody
  std::int64_t lease_seconds = 0;
  std::string acquire_time;  // for people, and to see that something changed
  std::string renew_time;
  std::int64_t transitions = 0;

  bool operator==(const LeaseRecord&) const = default;
};

// Members that are missing or of another type count as absent.
LeaseRecord decode_lease(const nlohmann::json& lease);
// Replaces the spec of `lease`, which may be a new object.
void encode_lease(const LeaseRecord& record, nlohmann::json& lease);

// Kubernetes' MicroTime: RFC 3339 with six digits of a second.
std::string to_micro_time(WallTime time);

}  // namespace tilewright::kube
