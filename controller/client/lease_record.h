// The fields of a coordination.k8s.io/v1 Lease that leader election uses, to and from JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/clock.h"

namespace tilewright::kube {

// A holder's longer duration counts as this one, so that no record makes the lease permanent.
inline constexpr std::int64_t kMaxLeaseSeconds = 3600;

struct LeaseRecord {
  std::string holder;  // holderIdentity; empty: not held
  std::int64_t lease_seconds = 0;
  std::string acquire_time;  // informational, and to detect changes
  std::string renew_time;
  std::int64_t transitions = 0;

  bool operator==(const LeaseRecord&) const = default;
};

// Members with an unexpected type count as absent. Numbers are bounded.
LeaseRecord decode_lease(const nlohmann::json& lease);
// Replaces the spec of `lease`.
void encode_lease(const LeaseRecord& record, nlohmann::json& lease);

// Kubernetes' MicroTime: RFC 3339 with six fractional digits.
std::string to_micro_time(WallTime time);

}  // namespace tilewright::kube
