// Where workers find the leader: a Service without selector, whose EndpointSlice the leader writes.
#pragma once

#include <string>

#include "common/net/address.h"
#include "controller/kube/client.h"

namespace tilewright::manager {

struct EndpointPlace {
  std::string namespace_name;
  std::string service;
};

nlohmann::json build_endpoint_slice(const EndpointPlace& place, const net::Address& leader);

// Makes the Service lead to `leader` (a numeric address), and returns what the workers are given:
// the Service's own address, so that nothing depends on DNS.
kube::ApiResult<net::Address> publish_endpoint(kube::Client& client, const kube::WriteGuard& guard,
                                               const EndpointPlace& place,
                                               const net::Address& leader, const net::Wait& wait);

}  // namespace tilewright::manager
