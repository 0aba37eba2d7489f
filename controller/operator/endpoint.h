// Publishes the leader's address in the EndpointSlice of a Service without selector.
#pragma once

#include <string>

#include "common/net/address.h"
#include "controller/client/client.h"

namespace tilewright::controller {

struct EndpointRef {
  std::string namespace_name;
  std::string service;
};

nlohmann::json build_endpoint_slice(const EndpointRef& ref, const net::Address& leader);

// Points the Service to `leader` (a numeric address) and returns the cluster IP and port of the
// Service. Workers get this address, so that they do not depend on DNS.
kube::ApiResult<net::Address> publish_endpoint(kube::Client& client, const kube::WriteGuard& guard,
                                               const EndpointRef& ref, const net::Address& leader,
                                               const net::Wait& wait);

}  // namespace tilewright::controller
